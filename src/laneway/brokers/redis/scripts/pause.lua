--@include base
-- Pause a queue, or resume it.
--
-- KEYS  the queue
-- args  paused
-- Answers whether that is new; nil when there is no such queue.
-- Changes :meta, and wakes a worker when the queue is resumed.

local meta = KEYS[1] .. ':meta'
if call('HEXISTS', meta, 'layout') == 0 then
  return false
end
make_room()
if args.paused then
  return call('HSETNX', meta, 'paused', 1)
end
ring(KEYS[1], false)
return call('HDEL', meta, 'paused')
