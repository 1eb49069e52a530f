--@include base
-- Have a queue get a copy of whatever is published to a topic.
--
-- KEYS  topics, the topic's subscriptions
-- args  topic, queue
--       filter  its text; '' when there is none
-- Answers 0 when it was so already.

if call('HGET', KEYS[2], args.queue) == args.filter then
  return 0
end
make_room() -- a worker that subscribes on a full server will empty it
call('SADD', KEYS[1], args.topic)
call('HSET', KEYS[2], args.queue, args.filter)
return 1
