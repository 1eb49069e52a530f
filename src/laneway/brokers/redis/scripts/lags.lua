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

local queue, said = queues[1], {}
for shard, late in pairs(lateness(queue)) do
  if shard < queue.layouts[1].shards then
    said[#said + 1], said[#said + 2] = shard, late
  end
end
return {'ok', pack(said)}
