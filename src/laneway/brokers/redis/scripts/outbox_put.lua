--@include base
--@include payloads
--@include jobs
-- Put what a publisher sends into the outbox of a shard: all of it, or nothing (Cluster). It is stored from here on.
-- The publisher delivers it at once or, if it dies here, any worker in its next sweep.
--
-- KEYS  the tag
-- args  entries  {id, text, …}
--       now      see enqueue
-- Answers {'ok', time} · {'stale'}: a shard that is being left may be closed at any moment, and nobody would look here.
-- Changes :outbox.

local tag = tags[1]
if not tag.is_open or tag.moving > 0 then
  return {'stale'}
end
-- No worker: whoever publishes has no lease.
local sent_at = string.format('%.17g', now)
for i = 1, #args.entries, 2 do
  call('HSET', tag.name .. ':outbox', args.entries[i], sent_at .. '\n\n' .. args.entries[i + 1])
end
return {'ok', sent_at}
