--@include base
--@include queue
-- End the resharding of a queue: its new shards are its shards from now on, and those before are to be closed.
--
-- KEYS  queues
-- args  queue, epoch: the one that is being left
--       processed, failed  what its shards have counted: they take that with them
-- Changes the queue's record: resharding → not resharding, in the next epoch. Once: then the epoch is another.

local queue = read_queue()
if not queue or queue[EPOCH] ~= args.epoch or queue[RESHARDING] == 0 then
  return 0
end
queue[CLOSING] = queue[SHARDS]
queue[SHARDS], queue[EPOCH], queue[RESHARDING] = queue[RESHARDING], queue[EPOCH] + 1, 0
queue[TO_MOVE], queue[MOVED] = 0, 0
queue[PROCESSED], queue[FAILED] = queue[PROCESSED] + args.processed, queue[FAILED] + args.failed
write_queue(queue)
return 1
