--@include base
-- Make a queue if it does not exist. Its name has been put among the names of all queues before.
--
-- KEYS  the queue
-- args  shards
-- Answers the queue's layout, see layout.py.

make_room() -- a worker that is to empty a full server declares its queues first
call('HSETNX', KEYS[1] .. ':meta', 'layout', '1/' .. args.shards)
return call('HMGET', KEYS[1] .. ':meta', 'layout', 'next', 'to_move', 'moved')
