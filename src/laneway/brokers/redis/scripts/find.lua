--@include base
--@include payloads
--@include jobs
--@include outdated
--@include views
-- A key's job that runs, the one that is queued or set aside, and the one in the morgue: whichever there are.
--
-- KEYS  the tag
-- args  key; payloads: how many to show of each; bytes: show no more of one when they are that many
--       moving: see cancel; now: see enqueue
-- Answers {'ok', views, packed} · {'stale', tag}.
-- Changes nothing.

if outdated_tag() then
  return {'stale', 1}
end
local job, grave = job_of(tags[1], args.key), grave_of(tags[1], args.key)
local views = {}
if job.worker then
  views[1] = running_view(job, args.payloads, args.bytes)
  if job.next_at then
    views[2] = aside_view(job, args.payloads, args.bytes)
  end
elseif job.size > 0 then
  views[1] = queued_view(job, args.payloads, args.bytes)
end
if grave.size > 0 then
  views[#views + 1] = dead_view(grave, args.payloads, args.bytes)
end
return {'ok', pack(views)}
