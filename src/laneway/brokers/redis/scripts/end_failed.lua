--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Take what has failed out of queued jobs: of a keyed one the call that did, of others all.
--
-- KEYS  the queue
-- args  keys
--       bury  into the morgue; nil or false: away
--       now     see enqueue
-- Answers {'ok', how many} · {'stale'}.
-- Changes the jobs, their indices and payloads, and the morgue.

return act_on_each(function(key)
  local job = queues[1].jobs[key]
  if not exists(job) then
    return false
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
