--@include base
--@include payloads
--@include jobs
--@include adding
--@include settling
--@include claiming
--@include turning
-- Settle what is finished and claim what is next, in one step.
--
-- KEYS  the tags: those of the queue, of which the first remembers the turn, then those that something is sent to
-- args  worker, seq   who, and the number of its turn on this queue: the same one again gets the same answer
--       finished      {tag, token, {key, …}}: claims of which all was done, and that send nothing
--       settlements   others: {tag, key, token, verdict, delay, retry, error, done, buried, died, jobs to send}
--       gone          keys of claims whose shard does not exist any more
--       claim         the tags to claim from, in their order; limit, batch, in_order, max_payloads
--       floor         the token must be larger
--       own           how many tags are the queue's
--       resharding    what the client knows of it: the tags may not have been told
--       heir          the tag that remembers the turn as well, because it will be the first when that is done
--       is_fresh      the client has just read the queue's record: what it does not say it need not read again
--       bells, now    see enqueue
-- Answers {'ok', token, refused keys, resharding, tag, key, claim, tag, key, claim, …} · {'stale', tag} ·
-- {'unknown', tag}: the worker is not known here · {'kind', settlement, job, kind}: see enqueue ·
-- {'late'}: the worker has taken another turn since.
-- Changes everything but other workers' claims.

local stale = stale_tag()
if stale then
  return {'stale', stale}
end
local worker = args.worker
local known = call('HMGET', KEYS[1] .. ':meta', 'w:' .. worker, 't:' .. worker)
if not known[1] then
  return {'unknown', 1}
end

local resharding = args.resharding or 0
for i = 1, args.own do
  resharding = math.max(resharding, tags[i].moving)
end

if resharding > 0 and not args.heir and not args.is_fresh then
  return {'stale', 1} -- the turn would be remembered only by a tag that may be closed in a moment
end

local function answer(token, refused, claims)
  local said, n = {'ok', token, refused, resharding}, 4
  for i = 1, #claims, 4 do
    said[n + 1], said[n + 2], said[n + 3] = claims[i].place, claims[i + 1], claims[i + 2]
    n = n + 3
  end
  return said
end

for i, tag in ipairs(tags) do
  tag.place = i
end

local last = known[2] and unpack_blob(known[2]) or {}
if last[1] and args.seq < last[1] then
  return {'late'} -- a copy of a call whose repeat was answered long ago; nobody waits for it
end
if last[1] == args.seq then
  local wanted = {}
  for n, i in ipairs(args.claim) do
    wanted[n] = tags[i]
  end
  return answer(last[2], last[3], claims_under(last[2], worker, wanted))
end

local refused, held, ending, news, gone = sort_out(worker)
stale = meet(news)
if stale then
  return {'stale', stale}
end
local i, kind = conflict(news, ending)
if i then
  return {'kind', news[i].told, news[i].place, kind}
end

local token = math.max(args.floor + 1, micros)
for _, tag in ipairs(tags) do
  token = math.max(token, tag.token + 1)
end
end_runs(worker, held, news, gone)

local taken, count = {}, 0
if args.limit > 0 and resharding == 0 then
  local wanted = {}
  for _, i in ipairs(args.claim) do
    if not tags[i].paused then
      wanted[#wanted + 1] = tags[i]
    end
  end
  taken, count = claim(wanted, worker, token, args.limit, args.batch, args.in_order, args.max_payloads)
end
if count > 0 then
  for i = 1, #taken, 4 do
    taken[i].claimed = true
  end
  local text = string.format('%.17g', token)
  for _, tag in ipairs(tags) do
    if tag.claimed then
      call('HSET', tag.name .. ':meta', 'token', text)
    end
  end
  if count >= args.limit then
    taken[1].woken = now -- there may be more, and somebody else who is idle
  end
end
-- pcall: that nothing happened need not be remembered when there is no room for it.
local turn = pack({args.seq, token, refused})
redis.pcall('HSET', KEYS[1] .. ':meta', 't:' .. worker, turn)
if args.heir then
  redis.pcall('HSET', KEYS[args.heir] .. ':meta', 't:' .. worker, turn)
end
wake()
return answer(token, refused, taken)
