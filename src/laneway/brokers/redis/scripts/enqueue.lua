--@include base
--@include payloads
--@include jobs
--@include adding
-- Store new jobs: all of them, or none.
--
-- KEYS  the tags that they belong to, and may belong to
-- args  jobs    new jobs, see adding
--       sender  whoever sends; seq: the number of this call among its calls. A repeated call does nothing.
--       bells   for each tag, what to ring when something is queued; nil where the client rings
--       now     instead of the server's time
-- Answers {'ok'} · {'stale', tag} · {'kind', job, kind}: the key of this job belongs to a job of that kind.
-- Changes the jobs, their indices and payloads.

-- First: if this is a repeat, the shard may be closed by now.
local sent = args.sender and KEYS[1] .. ':sent:' .. args.sender
if sent and tonumber(call('GET', sent) or 0) >= args.seq then
  return {'ok'}
end
local news = args.jobs
local stale = stale_tag() or meet(news)
if stale then
  return {'stale', stale}
end
local i, kind = conflict(news, {})
if i then
  return {'kind', i, kind}
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
return {'ok'}
