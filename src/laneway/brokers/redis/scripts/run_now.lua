--@include base
--@include payloads
--@include jobs
--@include settling
--@include acting
-- Have queued jobs be due now, with all their calls, retries included. A job that is due already keeps its place, and
-- counts.
--
-- KEYS  the tag
-- args  keys
--       moving, bells, now  see cancel
-- Answers {'ok', how many, place of a key that has no job here, …} · {'stale', tag}.
-- Changes the jobs, their indices, and the due times of their calls.

local stale = outdated_tag()
if stale then
  return {'stale', stale}
end
return act_on_each(function(key)
  local job = tags[1].jobs[key]
  if not exists(job) then
    return nil
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
