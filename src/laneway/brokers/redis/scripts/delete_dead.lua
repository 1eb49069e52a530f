--@include base
--@include payloads
--@include jobs
--@include settling
--@include acting
-- Remove dead jobs for good.
--
-- KEYS  the tag
-- args  keys
--       moving, now  see cancel
-- Answers {'ok', how many, place of a key that has nothing dead here, …} · {'stale', tag}.
-- Changes the morgue.

local stale = outdated_tag()
if stale then
  return {'stale', stale}
end
return act_on_each(function(key)
  local grave = grave_of(tags[1], key)
  if grave.size == 0 then
    return nil
  end
  remove_all_payloads(grave)
  return true
end)
