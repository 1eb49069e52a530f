--@include base
--@include payloads
--@include jobs
--@include moving
-- How much there still is in a shard that is being left. Once there is nothing and nothing runs, it stays so.
--
-- KEYS  the tag
-- Answers {'ok', jobs and graves that are not moved, claims, whether it is empty} · {'stale', tag}.
-- Changes nothing.

if not tags[1].is_open or tags[1].moving == 0 then
  return {'stale', 1}
end
local count = count_keys(KEYS[1])
return {'ok', count.left, count.running, count.is_empty and 1 or 0}
