--@include base
--@include payloads
--@include jobs
--@include existing
--@include settling
--@include acting
-- Remove dead jobs for good.
--
-- KEYS  the queue
-- args  keys
--       now     see enqueue
-- Answers {'ok', how many} · {'stale'}.
-- Changes the morgue.

return act_on_each(function(key)
  local grave = grave_of(queues[1], key)
  if grave.size == 0 then
    return false
  end
  remove_all_payloads(grave)
  return true
end)
