--@include base
--@include queue
-- Note that the shards of the epoch before are closed.
--
-- KEYS  queues
-- args  queue, epoch: the one that is now
-- Changes the queue's record.

local queue = read_queue()
if queue and queue[EPOCH] == args.epoch then
  queue[CLOSING] = 0
  write_queue(queue)
end
return 1
