--@include base
--@include payloads
--@include jobs
--@include settling
--@include acting
-- Put dead jobs back into the queue, due now and with all their retries; they merge with what is there of their key.
--
-- KEYS  the tag; while the queue is being resharded, on one server, also the one that the keys are being moved to
-- args  keys
--       moving, bells, now  see cancel
-- Answers {'ok', how many, place of a key that has nothing dead here, …} · {'stale', tag}.
-- Changes the morgue, the jobs, their indices and payloads.

local stale = outdated_tag()
if stale then
  return {'stale', stale}
end

-- A key is in one shard only: where its grave is, unless something went wrong.
local function job_in_any(grave)
  for _, tag in ipairs(tags) do
    if exists(tag.jobs[grave.key]) then
      return tag.jobs[grave.key]
    end
  end
  return grave.tag.jobs[grave.key]
end

return act_on_each(function(key)
  local revived
  for _, tag in ipairs(tags) do
    local grave = grave_of(tag, key)
    if grave.size > 0 then
      revived = revive(grave, job_in_any(grave)) or revived or false
    end
  end
  return revived
end)
