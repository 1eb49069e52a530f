--@include base
--@include payloads
--@include jobs
--@include adding
--@include settling
--@include claiming
--@include turning
--@include sending
-- Settle what is finished and claim what is next, in one step.
--
-- KEYS  the queue of the turn, then those that something is sent to (on a Cluster the first alone)
-- args  worker, seq   who, and the number of its turn on this queue: the same one again gets the same answer
--       layout        the name of the queue's layout that the client knows; layouts: see enqueue, '' for no jobs
--       finished      {token, {key, …}}: claims of which all was done, and that send nothing
--       settlements   others: {key, token, verdict, delay, retry, error, done, buried, died, jobs to send, and on a Cluster
--                     jobs for other queues: {queue, number of jobs, does their order matter, their text, …}}
--       shards        to claim from, in their order; limit, batch, in_order, max_payloads
--       floor         the token must be larger
--       now           see enqueue
-- Answers {'ok', token, refused keys, resharding, entries, key, claim, key, claim, …}: the shard count that the queue is
-- being changed to, or 0; the entries of the outbox that were written, see sending; 0 instead of them if the client must
-- read them, because the turn is a repeat, or older ones may have to be delivered before · {'stale'}: the client must read its layouts again · {'unknown'}: the worker is not known here ·
-- {'kind', settlement, job, kind}: see enqueue · {'late'}: the worker has taken another turn since.
-- Changes everything but other workers' claims.

local queue, worker = queues[1], args.worker
if not queue.is_there or queue.layouts[1].name ~= args.layout or is_stale() then
  return {'stale'}
end
local known = call('HMGET', queue.name .. ':meta', 'w:' .. worker, 't:' .. worker)
if not known[1] then
  return {'unknown'}
end

local function answer(token, refused, entries, claims)
  local said = {'ok', token, refused, queue.is_moving and queue.newest.shards or 0, entries}
  for i, part in ipairs(claims) do
    said[5 + i] = part
  end
  return said
end

local last = known[2] and unpack_blob(known[2]) or {}
if last[1] and args.seq < last[1] then
  return {'late'} -- a copy of a call whose repeat was answered long ago; no client waits for it
end
if last[1] == args.seq then
  return answer(last[2], last[3], 0, claims_under(queue, worker, last[2]))
end

local refused, held, ending, news, gone = sort_out(queue, worker)
meet(news)
local i, kind = conflict(news, ending)
if i then
  return {'kind', news[i].sender, news[i].place, kind}
end

local token = math.max(args.floor + 1, micros, queue.token + 1)
end_runs(queue, worker, held, news, gone)
local entries = put_entries(queue, held)

local taken, count = {}, 0
if args.limit > 0 and not queue.is_moving and not queue.paused then
  taken, count = claim(queue, args.shards, worker, token, args.limit, args.batch, args.in_order, args.max_payloads)
end
if count > 0 then
  call('HSET', queue.name .. ':meta', 'token', string.format('%.17g', token))
  if count >= args.limit then
    queue.woken = now -- there may be more, and another worker that is idle
  end
end
-- pcall: that nothing happened need not be remembered when there is no room for it.
redis.pcall('HSET', queue.name .. ':meta', 't:' .. worker, pack({args.seq, token, refused}))
wake()
return answer(token, refused, entries, taken)
