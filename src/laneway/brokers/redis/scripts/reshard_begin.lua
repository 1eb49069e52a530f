--@include base
--@include queue
-- Begin to change a queue's shard count, unless that is under way already, or its last shards are still to be closed.
--
-- KEYS  queues
-- args  queue, shards
-- Answers the queue's record, packed; nil when there is no such queue.
-- Changes the queue's record: not resharding → resharding, with its jobs still to be counted.

local queue = read_queue()
if not queue then
  return false
end
if queue[RESHARDING] == 0 and queue[SHARDS] ~= args.shards and queue[CLOSING] == 0 then
  queue[RESHARDING], queue[TO_MOVE], queue[MOVED] = args.shards, -1, 0
  write_queue(queue)
end
return pack(queue)
