--@include base
--@include payloads
--@include jobs
--@include adding
--@include settling
--@include claiming
-- Settle what is finished and claim what is next, in one step.
--
-- KEYS  the tags; the first one remembers the turn
-- args  worker, seq      who, and the number of its turn on this queue: the same one again gets the same answer
--       settlements      {tag, key, token, verdict, delay, retry, error, done, buried, died, jobs to send}
--       claim            the tags to claim from, in their order; limit, batch, in_order, max_payloads
--       floor            the token must be larger
--       peek             only say what could be claimed: when, by time, up to limit (Cluster)
--       bells, now       see enqueue
-- Answers {'ok', token, refused keys, resharding, key, claim, key, claim, …} · {'stale', tag} · {'unknown', tag}: the
-- worker is not known here · {'kind', settlement, job, kind}.
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
local last = known[2] and unpack_blob(known[2]) or {}

local wanted, resharding = {}, 0
for _, tag in ipairs(tags) do
  resharding = math.max(resharding, tag.moving)
end

local function answer(token, refused)
  local claims = {}
  for _, i in ipairs(args.claim) do
    local name = tags[i].name
    local keys = call('ZRANGEBYSCORE', name .. ':w:' .. worker, token, token)
    for j, blob in ipairs(values_of(name .. ':running', keys)) do
      claims[#claims + 1] = {unpack_blob(blob)[2], i, keys[j], blob}
    end
  end
  table.sort(claims, function(one, other) return one[1] < other[1] end)
  local said = {'ok', token, refused, resharding}
  for _, claimed in ipairs(claims) do
    said[#said + 1], said[#said + 2], said[#said + 3] = claimed[2], claimed[3], claimed[4]
  end
  return said
end

if last[1] == args.seq then
  return answer(last[2], last[3])
end

-- Which claims are still held: those of others, and second words about the same one, are refused.
local held, refused, seen, ending, news = {}, {}, {}, {}, {}
local keys = {}
for _, told in ipairs(args.settlements) do
  if told[1] then
    keys[told[1]] = keys[told[1]] or {}
    table.insert(keys[told[1]], told[2])
  end
end
for i, list in pairs(keys) do
  load(tags[i], list)
end
for i, told in ipairs(args.settlements) do
  local job = told[1] and job_of(tags[told[1]], told[2]) -- an empty one stands for a shard that is gone
  if job then
    read_claim(job)
  end
  if not job then
    seen[i] = true
  elseif job.worker == worker and job.token == told[3] and not seen[job] then
    seen[job] = true
    held[#held + 1] = {job = job, verdict = told[4], delay = told[5], retry = told[6], error = told[7], done = told[8],
      buried = told[9], died = told[10]}
    if job.kind == PLAIN and (told[4] == 'done' or told[4] == 'bury') then
      ending[job] = true
    end
    for j, new in ipairs(told[11] or {}) do
      new.told, new.place = i, j
      news[#news + 1] = new
    end
  else
    refused[#refused + 1] = told[2]
  end
end
meet(news)
local i, kind = conflict(news, ending)
if i then
  return {'kind', news[i].told, news[i].place, kind}
end

local token = math.max(args.floor + 1, micros)
for _, tag in ipairs(tags) do
  token = math.max(token, tag.token + 1)
end

-- They leave first: that makes room for all that follows.
local counts = {}
for _, told in ipairs(held) do
  drop_claim(told.job)
  local tag = told.job.tag
  counts[tag] = counts[tag] or {0, 0}
  if told.verdict == 'done' or told.done > 0 then
    counts[tag][1] = counts[tag][1] + 1
  end
  if told.verdict == 'retry' or told.verdict == 'bury' then
    counts[tag][2] = counts[tag][2] + 1
  end
end
for _, told in ipairs(held) do
  settle(told.job, told)
end
for _, new in ipairs(news) do
  add(new)
end
for _, tag in ipairs(tags) do
  flush(tag)
end
for tag, count in pairs(counts) do
  if count[1] > 0 then
    call('HINCRBY', tag.name .. ':meta', 'processed', count[1])
  end
  if count[2] > 0 then
    call('HINCRBY', tag.name .. ':meta', 'failed', count[2])
  end
end

local taken = {}
if args.limit > 0 and resharding == 0 then
  for _, i in ipairs(args.claim) do
    if not tags[i].paused then
      wanted[#wanted + 1] = tags[i]
    end
  end
  taken = claim(wanted, worker, token, args.limit, args.batch, args.in_order, args.max_payloads)
end
local said = {'ok', token, refused, resharding}
local place = {}
for i, tag in ipairs(tags) do
  place[tag] = i
end
for _, job in ipairs(taken) do
  local blob = pack_claim(job)
  said[#said + 1], said[#said + 2], said[#said + 3] = place[job.tag], job.key, blob
  job.claim_blob = blob
end
for _, tag in ipairs(tags) do
  flush(tag)
end
if #taken > 0 then
  local marked = {}
  for _, job in ipairs(taken) do
    if not marked[job.tag] then
      marked[job.tag] = true
      call('HSET', job.tag.name .. ':meta', 'token', token)
    end
  end
  if #taken >= args.limit then
    -- There may be more, and somebody else who is idle.
    wanted[1].woken = true
  end
end
-- pcall: that nothing happened need not be remembered when there is no room for it.
redis.pcall('HSET', KEYS[1] .. ':meta', 't:' .. worker, pack({args.seq, token, refused}))
wake()
return said
