-- Tags, and the jobs in them as the rest of a script sees them: loaded when asked for, changed in memory, and written
-- by `flush`, which also keeps every index. A flush removes before it adds.
--
-- A tag is one shard of a queue; all its keys share a hash tag:
--   :meta     hash    open, moving, paused, seq, token, ready, levels, processed, failed, w:<worker>, t:<worker>
--   :jobs     hash    key -> record of what is queued or, while the key is being run, set aside
--   :ready    list    time, arrival and key of jobs that were due when they came, in order; some may be outdated
--   :due      zset    arrival and key of other queued jobs by time; of another priority than 0: ':due:<priority>'
--   :keys     zset    the keys of queued jobs, in their order
--   :failed   zset    arrival and key of queued jobs that have failed, by time
--   :failures zset    time, arrival and key of the same, by retry_count
--   :fkeys    zset    their keys, in their order
--   :aside    zset    keys with something set aside, by its time
--   :running  hash    key -> record of the claim
--   :w:<id>   zset    keys that a worker holds, by token
--   :morgue   hash    key -> record; :dead zset by burial; :dkeys zset
--   :p: :c: :dp: :dc: payloads of a key that has several (see payloads)
--   :cancelled zset   what was cancelled, by time
--   :leaving  hash    keys on their way to another shard (see moving)
--   :outbox   hash    id -> what a run has sent and nobody has delivered yet (Cluster; see settle)
--   :sent:<id> string the last call of a sender (see enqueue)

local READY, DUE, ASIDE = 0, 1, 2

local function open(name)
  local meta = call('HMGET', name .. ':meta', 'open', 'moving', 'paused', 'seq', 'token', 'ready', 'levels')
  return {
    name = name,
    is_open = meta[1] and true,
    moving = tonumber(meta[2] or 0),
    paused = meta[3] and true,
    seq = tonumber(meta[4] or 0),
    token = tonumber(meta[5] or 0),
    ready_at = tonumber(meta[6] or '-inf') or -math.huge,
    levels = meta[7] and unpack_blob(meta[7]) or {},
    jobs = {},
    changed = {},
    new = {},
    adds = {},
    graves = {},
    graves_changed = {},
  }
end

local tags = {}
for i, name in ipairs(KEYS) do
  tags[i] = open(name)
end

-- Whether a key is on its way out of a shard that is being left: it is nowhere then, for a moment.
local function leaves(tag, keys)
  if tag.moving > 0 and #keys > 0 and call('EXISTS', tag.name .. ':leaving') == 1 then
    for _, blob in ipairs(values_of(tag.name .. ':leaving', keys)) do
      if blob then return true end
    end
  end
  return false
end

-- Nothing may be done in a shard that is none (any more): whoever asks has an outdated idea of the queue. Nor may it to
-- a key that is on its way.
local function stale_tag()
  for i, tag in ipairs(tags) do
    if not tag.is_open or leaves(tag, args.keys or {args.key}) then return i end
  end
end

-- On a Cluster what comes in one call comes in several, and the client says what came before what: in microseconds of
-- its clock, which must not be too wrong for that.
local arrival
local function comes_at(told)
  arrival = told and math.abs(told - micros) < 6e7 and told or nil
end

local arrivals = 0
local function next_seq(tag)
  tag.seq = math.max(tag.seq + 1, arrival or micros + arrivals)
  tag.seq_changed = true
  arrivals = arrivals + 1
  return tag.seq
end

-- -- records ---------------------------------------------------------------------------------------------------------

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

-- -- jobs of a tag ---------------------------------------------------------------------------------------------------

local function new_job(tag, key)
  return {tag = tag, key = key, size = 0, retry = -1, attempt = 0, deaths = 0, priority = 0}
end

-- Nothing → queued, as the latest that came.
local function begin_job(job, kind)
  job.kind, job.seq, job.is_new = kind, next_seq(job.tag), true
  -- It may have ended just now, in this script.
  job.retry, job.attempt, job.deaths, job.priority = -1, 0, 0, 0
  job.error, job.rest, job.since, job.latest, job.floor, job.expires, job.headers = nil, nil, nil, nil, nil, nil, nil
  table.insert(job.tag.new, job)
end

local function exists(job) return job.worker ~= nil or job.size > 0 end

local function read_found(tag, keys, blobs)
  local maybe_running, n = {}, 0
  for i, blob in ipairs(blobs) do
    local where
    if blob then
      local job = new_job(tag, keys[i])
      tag.jobs[job.key] = job
      where = read_job(job, blob)
      job.was = {where = where, at = job.at, priority = job.priority, retry = job.retry, seq = job.seq}
      if where == ASIDE then
        job.next_at = job.at
      end
    end
    if where == nil or where == ASIDE then
      n = n + 1
      maybe_running[n] = keys[i]
    end
  end
  if n == 0 or call('HLEN', tag.name .. ':running') == 0 then
    return
  end
  for i, blob in ipairs(values_of(tag.name .. ':running', maybe_running)) do
    if blob then
      local key = maybe_running[i]
      local job = tag.jobs[key] or new_job(tag, key)
      tag.jobs[key] = job
      job.claim_blob, job.worker = blob, ''
      if not job.was then
        read_claim(job)
      end
    end
  end
end

-- Have those jobs at hand that there are.
local function look_up(tag, keys)
  local wanted, asked = {}, {}
  for _, key in ipairs(keys) do
    if not tag.jobs[key] and not asked[key] then
      asked[key] = true
      wanted[#wanted + 1] = key
    end
  end
  read_found(tag, wanted, values_of(tag.name .. ':jobs', wanted))
end

-- The same, and those that there are not, as jobs that do not exist.
local function load(tag, keys)
  look_up(tag, keys)
  for _, key in ipairs(keys) do
    if not tag.jobs[key] then
      tag.jobs[key] = new_job(tag, key)
    end
  end
end

local function job_of(tag, key)
  if not tag.jobs[key] then
    load(tag, {key})
  end
  return tag.jobs[key]
end

-- -- writing ---------------------------------------------------------------------------------------------------------

local function index_of(level) return level == 0 and ':due' or ':due:' .. level end

local function push(lists, name, one, other)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  list[#list + 1] = one
  if other then
    list[#list + 1] = other
  end
end

-- Time and arrival as bytes that sort as they do.
local function by_time(at, seq)
  local bytes = struct.pack('>d', at + 0) -- which makes 0 of -0
  -- A negative number's bits sort the other way round.
  if at < 0 then
    bytes = bytes:gsub('.', function(byte) return string.char(255 - byte:byte()) end)
  else
    bytes = string.char(bytes:byte(1) + 128) .. bytes:sub(2)
  end
  return bytes .. ordered(seq)
end

local function add_level(tag, level)
  if not tag.has_level then
    tag.has_level = {}
    for _, known in ipairs(tag.levels) do
      tag.has_level[known] = true
    end
  end
  if not tag.has_level[level] then
    tag.has_level[level], tag.levels_changed = true, true
    tag.levels[#tag.levels + 1] = level
  end
end

local function drop_index(job, removes)
  local was, key = job.was, job.key
  if was.where == ASIDE then
    push(removes, 'ZREM :aside', key)
    return
  end
  if was.where == DUE then
    push(removes, 'ZREM ' .. index_of(was.priority), ordered(was.seq) .. key)
  end
  push(removes, 'ZREM :keys', key)
  if was.retry >= 0 then
    push(removes, 'ZREM :failed', ordered(was.seq) .. key)
    push(removes, 'ZREM :failures', by_time(was.at, was.seq) .. key)
    push(removes, 'ZREM :fkeys', key)
  end
end

local function add_index(job, where, at, adds)
  local key = job.key
  if where == ASIDE then
    push(adds, 'ZADD :aside', at, key)
    return
  end
  if where == DUE then
    push(adds, 'ZADD ' .. index_of(job.priority), at, ordered(job.seq) .. key)
    if job.priority ~= 0 then
      add_level(job.tag, job.priority)
    end
  else
    push(adds, 'RPUSH :ready', stamp(at, job.seq) .. key)
    job.tag.ready_at = at
    job.tag.ready_changed = true
  end
  push(adds, 'ZADD :keys', 0, key)
  if job.retry >= 0 then
    push(adds, 'ZADD :failed', at, ordered(job.seq) .. key)
    push(adds, 'ZADD :failures', job.retry, by_time(at, job.seq) .. key)
    push(adds, 'ZADD :fkeys', 0, key)
  end
  job.tag.woken = true
end

-- Where a job belongs now: nowhere, in one of the indices of queued jobs, or beside the one that runs.
local function place_of(job)
  if job.worker then
    return job.next_at and ASIDE, job.next_at
  end
  if job.size == 0 then
    return nil
  end
  local was = job.was
  if was and was.where ~= ASIDE and was.at == job.at and was.priority == job.priority then
    return was.where, job.at
  end
  -- The list is for those that have just come; others would not be in order there.
  local comes = job.is_new and job.priority == 0 and job.at <= now and job.at >= job.tag.ready_at
  return comes and READY or DUE, job.at
end

local function write_job(job, removes, adds)
  if job.size == 1 and not job.lone then
    job.lone = take_payloads(job, 1)[1]
    job.size = 1
  end
  local where, at = place_of(job)
  local was = job.was
  local same = was and where == was.where and at == was.at and was.retry == job.retry and was.priority == job.priority
  if where == ASIDE then
    same = was and was.where == ASIDE and was.at == at
  end
  if was and not same then
    drop_index(job, removes)
    if not where then
      push(removes, 'HDEL :jobs', job.key)
    end
  end
  if where then
    push(adds, 'HSET :jobs', job.key, pack_job(job, where, at))
    if not same then
      add_index(job, where, at, adds)
    end
    job.was = {where = where, at = at, priority = job.priority, retry = where == ASIDE and -1 or job.retry, seq = job.seq}
  else
    job.was = nil
  end
  job.is_new = nil
  if job.worker and job.claim_changed then
    push(adds, 'HSET :running', job.key, job.claim_blob)
    push(adds, 'ZADD :w:' .. job.worker, job.token, job.key)
    job.claim_changed = nil
  end
end

local function write_grave(grave, removes, adds)
  local was, key = grave.was, grave.key
  if was then
    push(removes, 'ZREM :dead', ordered(was.seq) .. key)
  end
  if grave.size == 1 and not grave.lone then
    grave.lone, grave.size = take_payloads(grave, 1)[1], 1
  end
  if grave.size > 0 then
    push(adds, 'HSET :morgue', key, pack_job(grave, DUE, grave.at))
    push(adds, 'ZADD :dead', grave.updated, ordered(grave.seq) .. key)
    push(adds, 'ZADD :dkeys', 0, key)
    grave.was = {seq = grave.seq}
  elseif was then
    push(removes, 'HDEL :morgue', key)
    push(removes, 'ZREM :dkeys', key)
    grave.was = nil
  end
end

-- By time and arrival.
local function sort_ready(list)
  table.sort(list, function(one, other)
    local at, seq = struct.unpack('>dI7', one)
    local other_at, other_seq = struct.unpack('>dI7', other)
    return at < other_at or (at == other_at and seq < other_seq)
  end)
end

-- Removing comes first: then a server that is out of memory lets the rest pass.
local function flush(tag)
  local removes, adds = {}, tag.adds
  local mixed = #tag.new > 0 and adds['RPUSH :ready']
  for _, grave in pairs(tag.graves_changed) do
    write_grave(grave, removes, adds)
  end
  tag.graves_changed = {}
  for _, job in pairs(tag.changed) do
    if not job.is_new then
      write_job(job, removes, adds)
    end
  end
  for _, job in ipairs(tag.new) do -- in the order in which they came
    write_job(job, removes, adds)
  end
  tag.changed, tag.new, tag.adds = {}, {}, {}
  if mixed then
    sort_ready(adds['RPUSH :ready'])
  end
  for what, list in pairs(removes) do
    each(what:sub(1, 4), tag.name .. what:sub(6), list)
  end
  for what, list in pairs(adds) do
    local command, name = what:match('^(%u+) (.*)$')
    each(command, tag.name .. name, list)
  end
  local meta = {}
  if tag.seq_changed then
    meta[#meta + 1], meta[#meta + 2] = 'seq', tag.seq
  end
  if tag.ready_changed then
    meta[#meta + 1], meta[#meta + 2] = 'ready', tag.ready_at
  end
  if tag.levels_changed then
    meta[#meta + 1], meta[#meta + 2] = 'levels', pack(tag.levels)
  end
  if #meta > 0 then
    call('HSET', tag.name .. ':meta', unpack(meta))
  end
  tag.seq_changed, tag.ready_changed, tag.levels_changed = nil, nil, nil
end

-- A claim has ended: it is nobody's any more. At once, because it makes room for all that follows.
local function drop_claim(job)
  call('HDEL', job.tag.name .. ':running', job.key)
  call('ZREM', job.tag.name .. ':w:' .. job.worker, job.key)
  job.claim_blob = nil
end

-- What of a key is in the morgue; its size is 0 when nothing is.
local function grave_of(tag, key)
  local grave = tag.graves[key]
  if not grave then
    grave = new_job(tag, key)
    grave.dead = true
    local blob = call('HGET', tag.name .. ':morgue', key)
    if blob then
      read_job(grave, blob)
      grave.was = {seq = grave.seq}
    end
    tag.graves[key] = grave
  end
  return grave
end

-- Have somebody look who waits for work, once for each queue.
local function wake()
  for i, tag in ipairs(tags) do
    local bell = tag.woken and args.bells and args.bells[i]
    if bell and call('EXISTS', bell) == 0 then
      call('LPUSH', bell, 1)
    end
  end
end
