--@include base
-- Put a queue among the names of all queues.
--
-- KEYS  queues
-- args  queue

make_room() -- a worker that is to empty a full server declares its queues first
return call('SADD', KEYS[1], args.queue)
