--@include base
--@include payloads
--@include jobs
--@include adding
--@include settling
--@include claiming
-- Settle what is finished and claim what is next, in one step.
--
-- KEYS  the tags; the first one remembers the turn
-- args  worker, seq   who, and the number of its turn on this queue: the same one again gets the same answer
--       finished      {tag, token, {key, …}}: claims of which all was done, and that send nothing
--       settlements   others: {tag, key, token, verdict, delay, retry, error, done, buried, died, jobs to send}
--       gone          keys of claims whose shard does not exist any more
--       claim         the tags to claim from, in their order; limit, batch, in_order, max_payloads
--       floor         the token must be larger
--       bells, now    see enqueue
-- Answers {'ok', token, refused keys, resharding, tag, key, claim, tag, key, claim, …} · {'stale', tag} ·
-- {'unknown', tag}: the worker is not known here · {'kind', settlement, job, kind}: see enqueue.
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

local resharding = 0
for _, tag in ipairs(tags) do
  resharding = math.max(resharding, tag.moving)
end

local function answer(token, refused, claims)
  local said, n = {'ok', token, refused, resharding}, 4
  for _, claimed in ipairs(claims) do
    said[n + 1], said[n + 2], said[n + 3] = claimed[1].place, claimed[2], claimed[3]
    n = n + 3
  end
  return said
end

for i, tag in ipairs(tags) do
  tag.place = i
end

local last = known[2] and unpack_blob(known[2]) or {}
if last[1] == args.seq then
  local claims = {}
  for _, i in ipairs(args.claim) do
    local name = tags[i].name
    local keys = call('ZRANGEBYSCORE', name .. ':w:' .. worker, last[2], last[2])
    for j, blob in ipairs(values_of(name .. ':running', keys)) do
      local _, _, pos = claim_parts(blob)
      claims[#claims + 1] = {tags[i], keys[j], blob, pos}
    end
  end
  table.sort(claims, function(one, other) return one[4] < other[4] end)
  return answer(last[2], last[3], claims)
end

-- Which claims are still held? Those of others, and second words about the same one, are refused.
local refused = args.gone or {}
local held, seen, ending, news = {}, {}, {}, {}
for i, told in ipairs(args.settlements) do
  local job = job_of(tags[told[1]], told[2])
  read_claim(job)
  if job.worker == worker and job.token == told[3] and not seen[job] then
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

-- Of what is finished, and was alone, there is nothing to be unpacked.
local gone = {}
for _, group in ipairs(args.finished) do
  local tag, keys = tags[group[1]], group[3]
  local held_by = claim_head(group[2], worker)
  local some_aside = call('EXISTS', tag.name .. ':aside') == 1
  local dropped = gone[tag] or {}
  gone[tag] = dropped
  for i, blob in ipairs(values_of(tag.name .. ':running', keys)) do
    local key = keys[i]
    if not blob or blob:sub(1, #held_by) ~= held_by or dropped[key] or (tag.jobs[key] and seen[tag.jobs[key]]) then
      refused[#refused + 1] = key
    else
      dropped[key] = true
      dropped[#dropped + 1] = key
      if some_aside or #news > 0 then
        local job = job_of(tag, key)
        read_claim(job)
        held[#held + 1] = {job = job, verdict = 'done', done = 0}
        ending[job] = job.kind == PLAIN or nil
      end
    end
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
local processed, failed = {}, {}
for tag, keys in pairs(gone) do
  if #keys > 0 then
    each('HDEL', tag.name .. ':running', keys)
    each('ZREM', tag.name .. ':w:' .. worker, keys)
    processed[tag] = #keys
  end
end
for _, told in ipairs(held) do
  local job = told.job
  if told.delay then
    drop_claim(job)
    if told.verdict == 'done' or told.done > 0 then
      processed[job.tag] = (processed[job.tag] or 0) + 1
    end
    if told.verdict == 'retry' or told.verdict == 'bury' then
      failed[job.tag] = (failed[job.tag] or 0) + 1
    end
  else
    job.claim_blob = nil
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
  tag.jobs = {}
  if processed[tag] then
    call('HINCRBY', tag.name .. ':meta', 'processed', processed[tag])
  end
  if failed[tag] then
    call('HINCRBY', tag.name .. ':meta', 'failed', failed[tag])
  end
end

local taken = {}
if args.limit > 0 and resharding == 0 then
  local wanted = {}
  for _, i in ipairs(args.claim) do
    if not tags[i].paused then
      wanted[#wanted + 1] = tags[i]
    end
  end
  taken = claim(wanted, worker, token, args.limit, args.batch, args.in_order, args.max_payloads)
end
if #taken > 0 then
  for _, claimed in ipairs(taken) do
    claimed[1].claimed = true
  end
  for _, tag in ipairs(tags) do
    if tag.claimed then
      call('HSET', tag.name .. ':meta', 'token', token)
    end
  end
  if #taken >= args.limit then
    taken[1][1].woken = true -- there may be more, and somebody else who is idle
  end
end
-- pcall: that nothing happened need not be remembered when there is no room for it.
redis.pcall('HSET', KEYS[1] .. ':meta', 't:' .. worker, pack({args.seq, token, refused}))
wake()
return answer(token, refused, taken)
