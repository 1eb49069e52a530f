-- Queues, and the jobs in them as the rest of a script sees them: loaded when asked for, changed in memory, and written
-- by `flush`, which also keeps every index. A flush removes before it adds.
--
-- All keys of a queue share a hash tag: on a Cluster they are in one slot. KEYS holds the common beginning of the keys of
-- each queue, `{<prefix>:<queue>:0}`. The 0 is the number of a partition: a queue has one.
--   :meta     hash    layout and next: the names of its layouts (see layouts); next only while it is being resharded, and
--                     then to_move and moved count the jobs; paused, seq, token, ready, levels, keys, keys_from, processed,
--                     failed, sent, w:<worker>, t:<worker>, s:<sender>
--   :jobs     hash    key -> record of what is queued or, while the key is being run, set aside
--   :ready:<layout>:<shard> list  time, arrival and key of jobs that were due when they came, in order; some are outdated
--   :due:<layout>:<shard>   zset  arrival and key of other queued jobs by time; of another priority than 0 the priority
--                     follows: ':due:<layout>:<shard>:<priority>'
--   :keys     zset    the keys of queued jobs, in their order; only while an operator lists them so (see sorting)
--   :failed   zset    arrival and key of queued jobs that have failed, by time
--   :failures zset    time, arrival and key of the same, by retry_count
--   :fkeys    zset    their keys, in their order
--   :aside    zset    keys with something set aside, by its time
--   :running  hash    key -> record of the claim
--   :w:<id>   zset    keys that a worker holds, by token
--   :morgue   hash    key -> record; :dead zset by burial; :dkeys zset
--   :p: :c: :dp: :dc: payloads of a key that has several (see payloads)
--   :cancelled zset   what was cancelled, by time
--   :outbox   hash    id -> jobs for other queues that no worker has delivered yet (Cluster; see sending, outbox_put)
--   :delivered zset   entries of other queues' outboxes that were delivered here, by when to forget them (Cluster)
--   :bell     list    one element: a worker that waits for the queue is to look; :bell:due: a job is due

--@include layouts

local function open(name)
  local meta = call('HMGET', name .. ':meta', 'layout', 'next', 'paused', 'seq', 'token', 'ready', 'levels', 'keys')
  local layouts = {meta[1] and layout_of(meta[1]), meta[2] and layout_of(meta[2]) or nil}
  return {
    name = name,
    is_there = meta[1] and true,
    layouts = layouts,
    newest = layouts[#layouts], -- new entries go there
    is_moving = meta[2] and true,
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

local queues = {}
for i, name in ipairs(KEYS) do
  queues[i] = open(name)
end

-- The shard of a job among those that new entries go to.
local function shard_of(job)
  job.shard = job.shard or shard_in(job.queue.newest, job.key)
  return job.shard
end

-- Every shard of a queue, as layout and number: of both layouts while it is being resharded.
local function each_shard(queue, act)
  for _, layout in ipairs(queue.layouts) do
    for shard = 0, layout.shards - 1 do
      act(layout, shard)
    end
  end
end

local arrivals = 0
local function next_seq(queue)
  queue.seq = math.max(queue.seq + 1, micros + arrivals)
  queue.seq_changed = true
  arrivals = arrivals + 1
  return queue.seq
end

--@include records

local function new_job(queue, key)
  return {queue = queue, key = key, size = 0, retry = -1, attempt = 0, deaths = 0, priority = 0}
end

-- Nothing → queued, as the latest that came.
local function begin_job(job, kind)
  job.kind, job.seq, job.is_new = kind, next_seq(job.queue), true
  -- It may have ended just now, in this script.
  job.retry, job.attempt, job.deaths, job.priority = -1, 0, 0, 0
  job.error, job.rest, job.since, job.latest, job.floor, job.expires, job.headers = nil, nil, nil, nil, nil, nil, nil
  table.insert(job.queue.new, job)
end

local function exists(job) return job.worker ~= nil or job.size > 0 end

local function read_found(queue, keys, blobs)
  local maybe_running, n = {}, 0
  for i, blob in ipairs(blobs) do
    local where
    if blob then
      local job = new_job(queue, keys[i])
      queue.jobs[job.key] = job
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
  if n == 0 or call('HLEN', queue.name .. ':running') == 0 then
    return
  end
  for i, blob in ipairs(values_of(queue.name .. ':running', maybe_running)) do
    if blob then
      local key = maybe_running[i]
      local job = queue.jobs[key] or new_job(queue, key)
      queue.jobs[key] = job
      job.claim_blob, job.worker = blob, ''
      if not job.was then
        read_claim(job)
      end
    end
  end
end

-- Have those jobs at hand that there are.
local function look_up(queue, keys)
  local wanted, asked = {}, {}
  for _, key in ipairs(keys) do
    if not queue.jobs[key] and not asked[key] then
      asked[key] = true
      wanted[#wanted + 1] = key
    end
  end
  read_found(queue, wanted, values_of(queue.name .. ':jobs', wanted))
end

-- The same, and those that there are not, as jobs that do not exist.
local function load(queue, keys)
  look_up(queue, keys)
  for _, key in ipairs(keys) do
    if not queue.jobs[key] then
      queue.jobs[key] = new_job(queue, key)
    end
  end
end

local function job_of(queue, key)
  if not queue.jobs[key] then
    load(queue, {key})
  end
  return queue.jobs[key]
end

-- What of a key is in the morgue; its size is 0 when nothing is.
local function grave_of(queue, key)
  local grave = queue.graves[key]
  if not grave then
    grave = new_job(queue, key)
    grave.dead = true
    local blob = call('HGET', queue.name .. ':morgue', key)
    if blob then
      read_job(grave, blob)
      grave.was = {seq = grave.seq}
    end
    queue.graves[key] = grave
  end
  return grave
end

--@include writing
