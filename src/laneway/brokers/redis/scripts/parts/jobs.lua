-- Tags, and the jobs in them as the rest of a script sees them: loaded when asked for, changed in memory, and written
-- by `flush`, which also keeps every index. A flush removes before it adds.
--
-- A tag is one shard of a queue; all its keys share a hash tag:
--   :meta     hash    open, moving, paused, seq, token, ready, levels, keys, keys_from, processed, failed, w:<worker>,
--                     t:<worker>, s:<sender>
--   :jobs     hash    key -> record of what is queued or, while the key is being run, set aside
--   :ready    list    time, arrival and key of jobs that were due when they came, in order; some may be outdated
--   :due      zset    arrival and key of other queued jobs by time; of another priority than 0: ':due:<priority>'
--   :keys     zset    the keys of queued jobs, in their order; only while somebody lists them so (see sorting)
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
--   :outbox   hash    id -> what a run or a publisher has sent and nobody has delivered yet (Cluster; see settle, outbox_put)
--   :delivered zset   what was delivered here out of outboxes, by when to forget it (Cluster; see enqueue)

local function open(name)
  local meta = call('HMGET', name .. ':meta', 'open', 'moving', 'paused', 'seq', 'token', 'ready', 'levels',
    'keys')
  return {
    name = name,
    is_open = meta[1] and true,
    moving = tonumber(meta[2] or 0),
    paused = meta[3] and true,
    seq = tonumber(meta[4] or 0),
    token = tonumber(meta[5] or 0),
    ready_at = tonumber(meta[6] or '-inf') or -math.huge,
    levels = meta[7] and unpack_blob(meta[7]) or {},
    by_key = tonumber(meta[8] or nil), -- until then there is an index of keys
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

--@include records

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

--@include writing
