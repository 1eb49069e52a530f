--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Have queued jobs be due now, with all their calls, retries included. A job that is due already keeps its place, and
-- counts.
--
-- KEYS  the queue
-- args  keys
--       now     see enqueue
-- Answers {'ok', how many} · {'stale'}.
-- Changes the jobs, their indices, and the due times of their calls.

return act_on_each(function(key)
  local job = queues[1].jobs[key]
  if not exists(job) then
    return false
  end
  if job.worker then
    return false
  end
  if job.at > now then
    reschedule(job, nil, now)
  elseif job.kind == KEYED then
    hasten(job, now)
  end
  return true
end)
