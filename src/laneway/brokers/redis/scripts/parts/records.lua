-- How a job, and a claim, is written as text and read again. Touches no key.

local READY, DUE, ASIDE = 0, 1, 2

-- A record is a state, time and arrival in 16 bytes, and the rest packed, without what is as usual at its end. So a
-- script sees where a job is, and whether an entry of the list is outdated, without unpacking anything.
-- State: kind + 4 × where + 16 if it has failed + 32 if its payloads are not in the record.
local FAILED, SPILLED = 16, 32

-- body, identity, score, latest, size, retry, attempt, deaths, priority, rest, since, error, expires, headers, then of
-- the lone call: attempt, deaths, time, arrival; then floor, updated, and the entries of a claim that has several.
local USUAL = {false, false, false, false, 1, -1, 0, 0, 0, false, false, false, false, false, 0, 0, false, false,
  false, false, false}

local function stamp(at, seq) return struct.pack('>dI7', at, seq) end

-- What stands in a record where nothing is said.
local function usual_score(kind, at) return kind == PLAIN and 0 or at end

local function pack_job(job, where, at, entries)
  local lone, kind = job.lone, job.kind
  local latest = job.latest or false
  if latest == at then
    latest = true
  end
  local rest = {
    false, false, false, latest, job.size, job.retry, job.attempt, job.deaths, job.priority, job.rest or false,
    job.since or false, job.error or false, job.expires or false, job.headers or false, 0, 0, false, false,
    job.floor or false, job.updated or false, entries or false,
  }
  if where == ASIDE then
    -- They are those of what runs, and stand in its claim.
    rest[6], rest[7], rest[8], rest[10], rest[12] = -1, 0, 0, false, false
  end
  if lone then
    rest[1] = lone.body
    if kind ~= PLAIN then
      rest[2] = lone.id
    end
    if lone.score ~= usual_score(kind, at) then
      rest[3] = lone.score
    end
    if kind == KEYED then
      rest[13], rest[14] = lone.expires or false, lone.headers or false
      rest[15], rest[16] = lone.attempt or 0, lone.deaths or 0
      if lone.at ~= at then rest[17] = lone.at end
      if lone.seq ~= job.seq then rest[18] = lone.seq end
    end
  end
  local last = 21
  while last > 0 and rest[last] == USUAL[last] do
    rest[last] = nil
    last = last - 1
  end
  local state = kind + 4 * where
  if where ~= ASIDE and job.retry >= 0 then
    state = state + FAILED
  end
  if not lone then
    state = state + SPILLED
  end
  return string.char(state) .. stamp(at, job.seq) .. pack(rest)
end

local function where_of(blob)
  return math.floor(blob:byte(1) % 16 / 4)
end

-- Fills a job from its record. Returns where it is.
local function read_job(job, blob)
  local state = blob:byte(1)
  local kind = state % 4
  local at, seq = struct.unpack('>dI7', blob, 2)
  local rest = unpack_blob(blob:sub(17))
  job.kind, job.at, job.seq = kind, at, seq
  job.size, job.retry, job.attempt = rest[5] or 1, rest[6] or -1, rest[7] or 0
  job.deaths, job.priority = rest[8] or 0, rest[9] or 0
  local latest = rest[4] or nil
  if latest == true then
    latest = at
  end
  job.latest, job.rest, job.since, job.error = latest, rest[10] or nil, rest[11] or nil, rest[12] or nil
  job.floor, job.updated = rest[19] or nil, rest[20] or nil
  local expires, headers = rest[13] or nil, rest[14] or nil
  if state < SPILLED then
    local lone = {body = rest[1], id = rest[2] or '', score = rest[3] or usual_score(kind, at)}
    if kind == KEYED then
      lone.expires, lone.headers, lone.attempt, lone.deaths = expires, headers, rest[15] or 0, rest[16] or 0
      lone.at, lone.seq = rest[17] or at, rest[18] or seq
    end
    job.lone = lone
  end
  if kind ~= KEYED then
    job.expires, job.headers = expires, headers
  end
  return math.floor(state % 16 / 4), rest[21]
end

-- A claim is its token, its place among those of its turn, the worker, and the job's record as it was before.
local function claim_head(token, worker)
  return ordered(token) .. worker .. '\0'
end

local function pack_entry(entry)
  return {entry.body, entry.score, entry.id or '', entry.attempt or 0, entry.deaths or 0, entry.at or false,
    entry.seq or 0, entry.headers or false, entry.expires or false}
end

-- A job that is handed out, as it was before: so nothing of it has been counted yet.
local function pack_claim(job)
  local record
  local entries = job.running
  local size, lone = job.size, job.lone
  if #entries == 1 then
    job.lone, job.size = entries[1], 1
    record = pack_job(job, DUE, job.at)
  else
    local packed = {}
    for i, entry in ipairs(entries) do
      packed[i] = pack_entry(entry)
    end
    job.lone, job.size = nil, #entries
    record = pack_job(job, DUE, job.at, packed)
  end
  job.lone, job.size = lone, size
  return claim_head(job.token, job.worker) .. struct.pack('>I4', job.pos) .. record
end

-- Who holds a claim: token, worker, place, record.
local function claim_parts(blob)
  local ending = blob:find('\0', 8, true)
  return struct.unpack('>I7', blob), blob:sub(8, ending - 1), struct.unpack('>I4', blob, ending + 1), blob:sub(ending + 5)
end

-- Fills a running job from its claim; what is set aside has been read before.
local function read_claim(job)
  if not job.claim_blob or job.running then
    return
  end
  local latest, next_at, since, floor = job.latest, job.next_at, job.since, job.floor
  local lone, size = job.lone, job.size
  local token, worker, pos, record = claim_parts(job.claim_blob)
  local _, entries = read_job(job, record)
  if entries then
    job.running = {}
    for i, entry in ipairs(entries) do
      job.running[i] = {body = entry[1], score = entry[2], id = entry[3], attempt = entry[4], deaths = entry[5],
        at = entry[6] or nil, seq = entry[7], headers = entry[8] or nil, expires = entry[9] or nil}
    end
  else
    job.running = {job.lone}
  end
  job.token, job.worker, job.pos = token, worker, pos
  job.attempt = job.attempt + 1
  if job.kind == KEYED then
    for _, entry in ipairs(job.running) do
      entry.attempt = entry.attempt + 1
    end
  end
  job.latest = latest or job.latest
  job.next_at, job.since, job.floor, job.lone, job.size = next_at, since, floor, lone, size
end
