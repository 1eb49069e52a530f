--@include base
-- Say that a queue is paused, or that it is not. Its shards have still to be told (see open).
--
-- KEYS  queues
-- args  queue, paused
-- Answers whether that is new; nil when there is no such queue.
-- Changes the queue's record.

local stored = call('HGET', KEYS[1], args.queue)
if not stored then
  return false
end
local record = unpack_blob(stored)
if record[4] == args.paused then
  return 0
end
record[4] = args.paused
make_room()
call('HSET', KEYS[1], args.queue, pack(record))
return 1
