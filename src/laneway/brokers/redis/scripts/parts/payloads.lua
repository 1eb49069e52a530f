-- The payloads of one key in one place: queued (set aside included) or dead.
--
-- A job knows its `size`. A payload that is alone lies in the job's own record, as `lone`. More of them are `spilled`:
-- a sorted set by score, and for calls a hash of the rest by identity. Members sort equals as they must be sorted:
-- calls by arrival, values by their bytes. (A NUL sorts before whatever else a body might go on with.)
--
-- An entry: body, score, id; of a call also seq, at, attempt, deaths, headers, expires.

-- Have a job, or a grave, be written by the next `flush`.
local function change(job)
  local changed = job.dead and job.queue.graves_changed or job.queue.changed
  changed[job.key] = job
end

local function order_key(job) return job.queue.name .. (job.dead and ':dp:' or ':p:') .. job.key end
local function calls_key(job) return job.queue.name .. (job.dead and ':dc:' or ':c:') .. job.key end

local function member_of(kind, entry)
  if kind == COLLECTING then
    return entry.body .. '\0' .. entry.id .. struct.pack('>I2', #entry.id)
  end
  return ordered(entry.seq) .. entry.id
end

local function value_of(member, score)
  local length = struct.unpack('>I2', member, #member - 1)
  return {body = member:sub(1, #member - length - 3), id = member:sub(-length - 2, -3), score = score}
end

local function pack_call(entry)
  return pack({entry.body, entry.seq, entry.at, entry.attempt or 0, entry.deaths or 0, entry.headers or false,
    entry.expires or false})
end

local function call_of(blob, id, score)
  local stored = unpack_blob(blob)
  return {id = id, score = score, body = stored[1], seq = stored[2], at = stored[3], attempt = stored[4],
    deaths = stored[5], headers = stored[6] or nil, expires = stored[7] or nil}
end

-- Entries from what ZRANGE … WITHSCORES says, in its order.
local function entries_of(job, found)
  local entries = {}
  if job.kind == COLLECTING then
    for i = 1, #found, 2 do
      entries[#entries + 1] = value_of(found[i], tonumber(found[i + 1]))
    end
    return entries
  end
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]:sub(8)
  end
  for i, blob in ipairs(values_of(calls_key(job), ids)) do
    entries[i] = call_of(blob, ids[i], tonumber(found[2 * i]))
  end
  return entries
end

local function spill_entry(job, entry)
  call('ZADD', order_key(job), entry.score, member_of(job.kind, entry))
  if job.kind ~= COLLECTING then
    call('HSET', calls_key(job), entry.id, pack_call(entry))
  end
end

-- Values lie by score and bytes: one is found by its identity only by looking through all. Where there are more than
-- this, each of which may be large, whoever asks has done so (see search), and says what was found in ARGV: the name of
-- the sorted set, the member or ''.
local SEARCHED = 16

local function is_vast(job) return job.kind == COLLECTING and job.size > SEARCHED end

local function found_in(job)
  for i = 2, #ARGV, 2 do
    if ARGV[i] == order_key(job) then return ARGV[i + 1] end
  end
end

-- What is to be searched for args.identity before it can be said whether it is there.
local function to_search(job)
  return args.identity and is_vast(job) and not found_in(job) and order_key(job)
end

-- The payload with an identity, or nil.
local function payload_of(job, id)
  if job.lone then
    return job.lone.id == id and job.lone or nil
  end
  if job.size == 0 then
    return nil
  end
  if job.kind ~= COLLECTING then
    local blob = call('HGET', calls_key(job), id)
    if not blob then return nil end
    local entry = call_of(blob, id)
    entry.score = tonumber(call('ZSCORE', order_key(job), member_of(job.kind, entry)))
    return entry
  end
  if is_vast(job) then
    local member = found_in(job)
    local score = call('ZSCORE', order_key(job), member)
    return score and value_of(member, tonumber(score)) or nil
  end
  for _, entry in ipairs(entries_of(job, call('ZRANGE', order_key(job), 0, -1, 'WITHSCORES'))) do
    if entry.id == id then return entry end
  end
  return nil
end

local function save_payload(job, entry, score)
  change(job)
  entry.score = score
  if entry ~= job.lone then
    spill_entry(job, entry)
  end
end

-- What is there already stays, with the smaller score and the more deaths of the two.
local function unite_one(job, entry)
  change(job)
  if job.size == 0 then
    job.lone, job.size = entry, 1
    return
  end
  if job.lone then
    if job.lone.id == entry.id then
      job.lone.score = math.min(job.lone.score, entry.score)
      job.lone.deaths = math.max(job.lone.deaths or 0, entry.deaths or 0)
      return
    end
    spill_entry(job, job.lone)
    job.lone = nil
  end
  if job.kind == COLLECTING then
    job.size = job.size + call('ZADD', order_key(job), 'LT', entry.score, member_of(job.kind, entry))
    return
  end
  local there = payload_of(job, entry.id)
  if there then
    there.deaths = math.max(there.deaths or 0, entry.deaths or 0)
    save_payload(job, there, math.min(there.score, entry.score))
  else
    spill_entry(job, entry)
    job.size = job.size + 1
  end
end

local function unite(job, entries)
  for _, entry in ipairs(entries) do
    unite_one(job, entry)
  end
end

-- The first payloads, up to a score; they stay.
local function first_payloads(job, count, until_score)
  if job.lone then
    return (count > 0 and (not until_score or job.lone.score <= until_score)) and {job.lone} or {}
  end
  if job.size == 0 or count <= 0 then
    return {}
  end
  return entries_of(job, call('ZRANGEBYSCORE', order_key(job), '-inf', until_score or '+inf', 'WITHSCORES', 'LIMIT', 0, count))
end

-- The same, and they are taken out.
local function take_payloads(job, count, until_score)
  local taken = first_payloads(job, count, until_score)
  if #taken == 0 then
    return taken
  end
  change(job)
  if job.lone then
    job.lone = nil
  else
    call('ZREMRANGEBYRANK', order_key(job), 0, #taken - 1)
    if job.kind ~= COLLECTING then
      local ids = {}
      for i, entry in ipairs(taken) do
        ids[i] = entry.id
      end
      each('HDEL', calls_key(job), ids)
    end
  end
  job.size = job.size - #taken
  return taken
end

-- The same, but no more once they have so many characters; at least one, if there is one.
local function take_some(job, count, until_score, most)
  local taken, chars, step = {}, 0, 8
  while #taken < count and (chars < most or #taken == 0) do
    local more = take_payloads(job, math.min(step, count - #taken), until_score)
    if #more == 0 then
      break
    end
    for _, entry in ipairs(more) do
      taken[#taken + 1] = entry
      chars = chars + #entry.body
    end
    step = math.floor((most - chars) / (chars / #taken + 1)) + 1 -- as many as fit, if they are like those before
  end
  return taken
end

local function remove_payload(job, entry)
  change(job)
  job.size = job.size - 1
  if job.lone then
    job.lone = nil
    return
  end
  call('ZREM', order_key(job), member_of(job.kind, entry))
  if job.kind ~= COLLECTING then
    call('HDEL', calls_key(job), entry.id)
  end
end

local function remove_all_payloads(job)
  if job.size > 0 and not job.lone then
    call('UNLINK', order_key(job), calls_key(job))
  end
  change(job)
  job.lone, job.size = nil, 0
end

local function end_score(job, rank)
  if job.lone then
    return job.lone.score
  end
  return tonumber(call('ZRANGE', order_key(job), rank, rank, 'WITHSCORES')[2])
end
local function smallest_score(job) return end_score(job, 0) end
local function largest_score(job) return end_score(job, -1) end
