--@include arguments
-- Store new jobs: all of them, or none.
--
-- KEYS  the queues
-- ARGV  then, of simple jobs, the records of each queue, as far as they follow the stamp, in one text
-- args  layouts for each queue, the name of the layout by which the client has chosen the shards of its jobs
--       jobs    new jobs, see adding; or, if they are all simple (see there) and of one `kind`:
--       simple  for each queue, columns: keys, lengths of records, shards, and the places that the jobs have in the call
--       sender  who sends; seq: the number of this call among its calls. A repeated call does nothing.
--       entry   instead of a sender: the id of the outbox entry that the jobs were in. Each is stored once (Cluster).
--       after   {queue, sender, seq} of the call that must have been made before, if any: nothing may overtake it
--       now     instead of the server's time
--       check   store nothing, and say whether all could be stored (Cluster)
-- Answers {'ok'} · {'stale'}: the client must read its layouts again, or the call before was not made ·
-- {'kind', job, kind}: the key of this job belongs to a job of that kind.
-- Changes the jobs, their indices and payloads.

-- First, if this is a repeat: the queue may have been resharded since. What is remembered of a sender is the number of its
-- last call and the second of it.
local sent = args.sender and 's:' .. args.sender
local first_meta = call('HMGET', KEYS[1] .. ':meta', 'layout', 'next', 'seq', 'ready', 'paused', 'keys', sent or '')
if first_meta[7] and tonumber(first_meta[7]:match('^%d+')) >= args.seq then
  return {'ok'}
end
if args.after then
  local before = call('HGET', args.after[1] .. ':meta', 's:' .. args.after[2])
  if not before or tonumber(before:match('^%d+')) < args.after[3] then
    return {'stale'}
  end
end
--@include simple
--@include base
--@include payloads
--@include jobs
--@include adding
--@include delivering

if is_stale() then
  return {'stale'}
end
if args.entry and was_delivered(args.entry) then
  return {'ok'}
end
meet(args.jobs)
local i, kind = conflict(args.jobs, {})
if i then
  return {'kind', i, kind}
end
if args.check then
  return {'ok'}
end
for _, new in ipairs(args.jobs) do
  add(new)
end
for _, queue in ipairs(queues) do
  flush(queue)
end
wake()
if sent then
  call('HSET', KEYS[1] .. ':meta', sent, args.seq .. ' ' .. math.floor(micros / 1e6))
elseif args.entry then
  note_delivered(args.entry)
end
return {'ok'}
