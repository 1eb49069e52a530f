--@include base
--@include payloads
--@include jobs
--@include existing
--@include lateness
-- By how many seconds the most overdue job of each shard is late.
--
-- KEYS  the queue
-- args  now    see enqueue
-- Answers {'ok', packed: shard, seconds, shard, seconds, … of those in which something is due} · {'stale'}.
-- Changes nothing but outdated entries at the heads of the lists, which it forgets.

local said = {}
for shard, late in pairs(lateness(queues[1])) do
  said[#said + 1], said[#said + 2] = shard, late
end
return {'ok', pack(said)}
