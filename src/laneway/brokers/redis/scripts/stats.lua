--@include base
--@include payloads
--@include jobs
--@include existing
--@include lateness
-- A queue in numbers.
--
-- KEYS  the queue
-- args  now    see enqueue
-- Answers {'ok', packed: length, delayed, retries, dead, busy, processed, failed, lag, is it paused} · {'stale'}.
-- Changes nothing but outdated entries at the heads of the lists, which it forgets.

local queue, lag = queues[1], 0
for _, late in pairs(lateness(queue)) do
  lag = math.max(lag, late)
end
local counted = call('HMGET', queue.name .. ':meta', 'processed', 'failed')
return {'ok', pack({
  call('HLEN', queue.name .. ':jobs'),
  delayed_jobs(queue),
  call('ZCARD', queue.name .. ':failed'),
  call('HLEN', queue.name .. ':morgue'),
  call('HLEN', queue.name .. ':running'),
  tonumber(counted[1] or 0),
  tonumber(counted[2] or 0),
  lag,
  queue.paused or false,
})}
