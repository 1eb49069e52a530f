--@include base
--@include payloads
--@include jobs
--@include existing
--@include views
-- A key's job that runs, the one that is queued or set aside, and the one in the morgue: whichever there are.
--
-- KEYS  the queue
-- args  key; payloads: how many to show of each; bytes: show no more of one when they are that many
--       now: see enqueue
-- Answers {'ok', views, packed; the shard count} · {'stale'}.
-- Changes nothing.

local job, grave = job_of(queues[1], args.key), grave_of(queues[1], args.key)
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
return {'ok', pack(views), queues[1].layouts[1].shards}
