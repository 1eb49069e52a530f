--@include base
--@include payloads
--@include jobs
--@include settling
--@include acting
-- Have a queued job be due at another time, or one call of it; by the identity of a payload also what is set aside.
--
-- KEYS  the tag
-- args  key
--       identity    of the payload; nil: the whole job
--       perform_at  when; nil: `delay` seconds from now
--       moving, bells, now  see cancel
-- Answers {'ok', 1} · {'ok', 0}: it runs, or there is no such payload · {'absent'}: there is no such job here ·
-- {'search', name}: see payloads · {'stale', tag}.
-- Changes the job, its indices, and the due times of its calls.

local stale = outdated_tag()
if stale then
  return {'stale', stale}
end
local job = job_of(tags[1], args.key)
if not exists(job) then
  return {'absent'}
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
flush(tags[1])
wake()
return {'ok', 1}
