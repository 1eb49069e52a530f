--@include base
-- How many jobs of a queue each worker holds.
--
-- KEYS  the queue
-- args  workers: their ids
-- Answers the numbers, in that order. A queue that is none has no jobs.
-- Changes nothing.

local counts = {}
for i, worker in ipairs(args.workers) do
  counts[i] = call('ZCARD', KEYS[1] .. ':w:' .. worker)
end
return counts
