--@include base
-- End a subscription. A topic that has none left is forgotten.
--
-- KEYS  topics, the topic's subscriptions
-- args  topic, queue
-- Answers 0 when there was none.

local ended = call('HDEL', KEYS[2], args.queue)
if call('EXISTS', KEYS[2]) == 0 then
  call('SREM', KEYS[1], args.topic)
end
return ended
