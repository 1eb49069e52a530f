--@include base
--@include payloads
--@include jobs
--@include adding
-- Store new jobs: all of them, or none.
--
-- KEYS  the tags that they belong to, and may belong to
-- args  jobs    new jobs, see adding
--       sender  whoever sends; seq: the number of this call among its calls. A repeated call does nothing.
--       after   {its key, seq} of the call that must have been made before, if any: nothing may overtake it
--       bells   for each tag, what to ring when something is queued; nil where the client rings
--       now     instead of the server's time
--       present only those whose key is here (Cluster, while the queue is being resharded)
--       check   store nothing, and say whether all could be stored: after these runs have ended, {key, token, …} of
--               args.worker in `ending`, which are plain jobs' and done or buried (Cluster)
-- Answers {'ok', woken, job that is not here, …} · {'stale', tag}, 0: the call before was not made ·
-- {'kind', job, kind}: the key of this job belongs to a job of that kind.
-- Changes the jobs, their indices and payloads.

-- The jobs whose key will be free when the runs of `ending` have ended.
local function ending_jobs()
  local ending, told = {}, args.ending or {}
  for i = 1, #told, 2 do
    local job = tags[1].jobs[told[i]]
    if job and job.worker then
      read_claim(job)
      if job.kind == PLAIN and job.worker == args.worker and job.token == told[i + 1] then
        ending[job] = true
      end
    end
  end
  return ending
end

-- First: if this is a repeat, the shard may be closed by now.
local sent = args.sender and KEYS[1] .. ':sent:' .. args.sender
if sent and tonumber(call('GET', sent) or 0) >= args.seq then
  return {'ok', 0}
end
if args.after and tonumber(call('GET', args.after[1]) or 0) < args.after[2] then
  return {'stale', 0}
end
local news = args.jobs
local stale = stale_tag() or meet(news)
if stale then
  return {'stale', stale}
end
local said = {'ok', 0}
if args.present then
  local here = {}
  for i, new in ipairs(news) do
    if new.stays then
      new.place = i
      here[#here + 1] = new
    else
      said[#said + 1] = i
      if not args.check then
        uncancel(new)
      end
    end
  end
  news = here
end
local i, kind = conflict(news, ending_jobs())
if i then
  return {'kind', news[i].place or i, kind}
end
if args.check then
  return said
end
for _, new in ipairs(news) do
  add(new)
end
for _, tag in ipairs(tags) do
  flush(tag)
end
wake()
if sent then
  call('SET', sent, args.seq, 'EX', 600)
end
for _, tag in ipairs(tags) do
  if tag.woken then
    said[2] = 1
  end
end
return said
