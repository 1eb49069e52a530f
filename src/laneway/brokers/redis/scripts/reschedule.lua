--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Have a queued job be due at another time, or one call of it; by the identity of a payload also what is set aside.
--
-- KEYS  the queue
-- args  key
--       identity    of the payload; nil: the whole job
--       perform_at  when; nil: `delay` seconds from now
--       now     see enqueue
-- Answers {'ok', 1} · {'ok', 0}: it runs, or there is no such job or payload · {'search', name}: see payloads · {'stale'}.
-- Changes the job, its indices, and the due times of its calls.

local job = job_of(queues[1], args.key)
if not exists(job) then
  return {'ok', 0}
end
local name = to_search(job)
if name then
  return {'search', name}
end
local entry = args.identity and payload_of(job, args.identity)
if (args.identity or job.worker) and not entry then
  return {'ok', 0}
end
local at = args.perform_at or now + args.delay
if job.worker then
  reschedule_aside(job, entry, at)
else
  reschedule(job, entry, at)
end
flush(queues[1])
wake()
return {'ok', 1}
