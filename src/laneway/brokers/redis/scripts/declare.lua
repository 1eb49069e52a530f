--@include base
-- Make a queue if it does not exist.
--
-- KEYS  queues
-- args  queue, shards
-- Answers the queue's record, packed: {shards, epoch, resharding, paused, to move}.

make_room() -- whoever is to empty a full server declares its queues first
call('HSETNX', KEYS[1], args.queue, pack({args.shards, 1, 0, false, 0}))
return call('HGET', KEYS[1], args.queue)
