--@include base
--@include payloads
--@include jobs
--@include settling
--@include acting
-- Take what has failed out of queued jobs: of a keyed one the call that did, of others all.
--
-- KEYS  the tag
-- args  keys
--       bury  into the morgue; nil or false: away
--       moving, bells, now  see cancel
-- Answers {'ok', how many, place of a key that has no job here, …} · {'stale', tag}.
-- Changes the jobs, their indices and payloads, and the morgue.

local stale = outdated_tag()
if stale then
  return {'stale', stale}
end
return act_on_each(function(key)
  local job = tags[1].jobs[key]
  if not exists(job) then
    return nil
  end
  if job.worker or job.retry < 0 then
    return false
  end
  -- At once, because it makes room for all that follows.
  call('ZREM', KEYS[1] .. ':fkeys', key)
  local ended = take_payloads(job, job.kind == KEYED and 1 or job.size)
  if args.bury then
    bury(job, ended, job.retry, job.error)
  end
  leave_behind(job, {})
  put_back(job)
  return true
end)
