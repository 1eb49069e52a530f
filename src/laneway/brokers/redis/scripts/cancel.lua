--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Remove a queued job with all its payloads, or one of them; what is set aside counts as queued.
--
-- KEYS  the queue
-- args  key
--       identity  of the payload; nil: the whole job
--       now       see enqueue
-- Answers {'ok', 1} · {'ok', 0}: it runs, or there is no such job or payload · {'search', name}: see payloads · {'stale'}.
-- Changes the job, its indices and payloads; and :cancelled, where it is remembered.

local job = job_of(queues[1], args.key)
if not exists(job) then
  return {'ok', 0}
end
local name = to_search(job)
if name then
  return {'search', name}
end
if args.identity then
  local entry = payload_of(job, args.identity)
  if not entry then
    return {'ok', 0}
  end
  cancel_payload(job, entry)
elseif job.worker then
  return {'ok', 0}
else
  remove_all_payloads(job)
end
flush(queues[1])
call('ZADD', KEYS[1] .. ':cancelled', now, args.key .. '\0' .. (args.identity or ''))
wake()
return {'ok', 1}
