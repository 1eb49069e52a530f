--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Put dead jobs back into the queue, due now and with all their retries; they merge with what is there of their key.
--
-- KEYS  the queue
-- args  keys
--       now     see enqueue
-- Answers {'ok', how many} · {'stale'}.
-- Changes the morgue, the jobs, their indices and payloads.

return act_on_each(function(key)
  local grave = grave_of(queues[1], key)
  return grave.size > 0 and revive(grave, queues[1].jobs[key])
end)
