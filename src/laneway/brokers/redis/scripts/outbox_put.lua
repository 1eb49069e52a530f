--@include base
-- Put the copies of events that a publisher sends to several queues into the outbox of one of them: all, or none (Cluster).
-- They are stored from here on. The publisher delivers them at once or, if it dies here, any worker in its next sweep.
--
-- KEYS  the queue
-- args  entries  {id, text, …}
--       now      see enqueue
-- Answers {'ok', time} · {'stale'}: there is no such queue.
-- Changes :outbox.

if call('HEXISTS', KEYS[1] .. ':meta', 'layout') == 0 then
  return {'stale'}
end
local sent_at = string.format('%.17g', now)
for i = 1, #args.entries, 2 do
  call('HSET', KEYS[1] .. ':outbox', args.entries[i], sent_at .. '\n' .. args.entries[i + 1])
end
return {'ok', sent_at}
