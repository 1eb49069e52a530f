--@include base
--@include payloads
--@include jobs
--@include outdated
--@include lanes
--@include lateness
-- A tag in numbers.
--
-- KEYS  the tag
-- args  moving: see cancel; now: see enqueue
-- Answers {'ok', packed: length, delayed, retries, dead, busy, processed, failed, lag or false} · {'stale', tag}.
-- Changes nothing but outdated entries at the head of the list, which it forgets.

if outdated_tag() then
  return {'stale', 1}
end
local tag = tags[1]
local counted = call('HMGET', tag.name .. ':meta', 'processed', 'failed')
return {'ok', pack({
  call('HLEN', tag.name .. ':jobs'),
  delayed_jobs(tag),
  call('ZCARD', tag.name .. ':failed'),
  call('HLEN', tag.name .. ':morgue'),
  call('HLEN', tag.name .. ':running'),
  tonumber(counted[1] or 0),
  tonumber(counted[2] or 0),
  lateness(tag) or false,
})}
