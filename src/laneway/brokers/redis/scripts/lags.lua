--@include base
--@include payloads
--@include jobs
--@include outdated
--@include lanes
--@include lateness
-- By how many seconds the most overdue job of a tag is late.
--
-- KEYS  the tag
-- args  moving: see cancel; now: see enqueue
-- Answers {'ok', packed: the seconds, or false when nothing is due} · {'stale', tag}.
-- Changes nothing but outdated entries at the head of the list, which it forgets.

if outdated_tag() then
  return {'stale', 1}
end
return {'ok', pack(lateness(tags[1]) or false)}
