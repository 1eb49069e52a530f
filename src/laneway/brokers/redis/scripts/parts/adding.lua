-- Adds a payload: starts a job, or joins the job of its key.
--
-- A new job as the client says it, by position:
--   queue (its place in KEYS), shard, kind, key, body, identity, perform_at, delay_s, timed, score, priority, expires,
--   headers, quiet {grace_s, max_wait_s, max_size}

local function due_time(new)
  return new[7] or now + new[8]
end

local function quiet_until(since, size, quiet, due)
  if due and due <= now then return due end
  if quiet[3] and size >= quiet[3] then return now end
  return math.min(now + quiet[1], quiet[2] and since + quiet[2] or math.huge)
end

local function next_score(largest)
  if not largest or largest < now then return now end
  return largest + math.max(1e-6, math.abs(largest) * 2.3e-16)
end

-- Whether nothing was said of a new job but what every job has.
local function is_simple(new)
  return not (new[11] or new[12] or new[13] or new[14]) and (new[3] == COLLECTING or not new[10])
end

-- Whether the client knows the shards of the queues that it gives new jobs for. If not, it has chosen wrong ones.
local function is_stale()
  for i, queue in ipairs(queues) do
    local layout = args.layouts[i] or ''
    if layout ~= '' and (not queue.is_there or queue.newest.name ~= layout) then
      return true
    end
  end
  return false
end

-- Look which jobs the new ones meet. Most meet none and are simple: of those nothing is loaded, and they have no `job`.
local function meet(news)
  local keys, counts = {}, {}
  for _, new in ipairs(news) do
    local queue, key = queues[new[1]], new[4]
    new.queue = queue
    if not keys[queue] then
      keys[queue], counts[queue] = {}, {}
    end
    local count = counts[queue]
    if not count[key] then
      table.insert(keys[queue], key)
    end
    count[key] = (count[key] or 0) + 1
  end
  for queue, wanted in pairs(keys) do
    look_up(queue, wanted)
  end
  for _, new in ipairs(news) do
    local queue, key = new.queue, new[4]
    if queue.jobs[key] or counts[queue][key] > 1 or not is_simple(new) then
      new.job = job_of(queue, key)
      new.job.shard = new[2]
    end
  end
end

-- The first of them whose key belongs to a job of another kind, and that kind. `ending` are jobs that will be gone.
local function conflict(news, ending)
  local kinds = {}
  for i, new in ipairs(news) do
    local job = new.job
    if job then
      if kinds[job] == nil then
        kinds[job] = exists(job) and not ending[job] and job.kind or new[3]
      end
      if new[3] ~= PLAIN and kinds[job] ~= new[3] then
        return i, kinds[job]
      end
    end
  end
end

local function begin(job, new, at)
  local kind, quiet = new[3], new[14]
  begin_job(job, kind)
  job.at = at
  job.priority = new[11] or 0
  local entry = {body = new[5], id = new[6], score = at, seq = job.seq, at = at, attempt = 0, deaths = 0}
  if kind == PLAIN then
    entry.score = new[10] or 0
    job.expires, job.headers = new[12], new[13]
  elseif kind == KEYED then
    entry.expires, entry.headers = new[12], new[13]
  else
    entry.score = new[10] or next_score(nil)
  end
  if quiet then
    job.since, job.at = now, quiet_until(now, 1, quiet)
  end
  if not new[9] then
    job.latest = kind == KEYED and at or nil
  end
  unite_one(job, entry)
end

local function runs_call(job, id)
  if not job.claim_blob or not job.claim_blob:find(id, 1, true) then
    return false
  end
  read_claim(job)
  for _, entry in ipairs(job.running) do
    if entry.id == id then return true end
  end
  return false
end

local function add_call(job, new, at)
  if payload_of(job, new[6]) or (job.worker and runs_call(job, new[6])) then
    return -- a repeat is harmless
  end
  if not new[9] then
    at = job.latest and math.max(at, job.latest) or at
    job.latest = at
  end
  unite_one(job, {body = new[5], id = new[6], score = at, seq = next_seq(job.queue), at = at, attempt = 0, deaths = 0,
    expires = new[12], headers = new[13]})
  if job.worker then
    job.next_at = smaller(job.next_at, at)
  else
    job.at = math.min(job.at, at)
    if job.rest then
      job.at = math.max(job.rest, job.at)
    end
  end
end

local function has_value(job, new)
  if job.lone then
    return job.lone.id == new[6]
  end
  local value = {body = new[5], id = new[6]}
  return job.size > 0 and call('ZSCORE', order_key(job), member_of(COLLECTING, value)) and true
end

local function add_value(job, new, at)
  local score, quiet = new[10], new[14]
  if score or not has_value(job, new) then
    if not score then
      local largest = job.size > 0 and largest_score(job) or nil
      if job.worker and not job.floor then
        read_claim(job)
        job.floor = job.running[#job.running].score
      end
      if job.worker then
        largest = largest and math.max(largest, job.floor) or job.floor
      end
      score = next_score(largest)
    end
    unite_one(job, {body = new[5], id = new[6], score = score})
  end
  change(job)
  if not job.worker then
    if quiet and job.since and job.retry == -1 then
      job.at = quiet_until(job.since, job.size, quiet, job.at)
    end
  elseif not job.next_at then
    job.next_at = at
    if quiet then
      job.since, job.next_at = now, quiet_until(now, 1, quiet)
    end
  elseif quiet and job.since then
    job.next_at = quiet_until(job.since, job.size, quiet, job.next_at)
  end
end

local function uncancel(new)
  local queue = new.queue
  if queue.cancelled == nil then
    queue.cancelled = call('EXISTS', queue.name .. ':cancelled') == 1
  end
  if queue.cancelled then
    call('ZREM', queue.name .. ':cancelled', new[4] .. '\0', new[4] .. '\0' .. new[6])
  end
end

-- A simple job that meets none.
local function add_simple(new, at)
  local queue, kind, key = new.queue, new[3], new[4]
  local seq, where, rest = next_seq(queue), DUE, {new[5]}
  if kind ~= PLAIN then
    rest[2] = new[6]
    if kind == KEYED then
      rest[3], rest[4] = false, not new[9]
    else
      local score = new[10] or next_score(nil)
      if score ~= at then
        rest[3] = score
      end
    end
  end
  local adds = queue.adds
  if at <= now and at >= queue.ready_at and not queue.is_moving then
    where = READY
    push(adds, 'RPUSH ' .. ready_index(queue.newest, new[2]), stamp(at, seq) .. key)
    queue.ready_at, queue.ready_changed = at, true
  else
    push(adds, 'ZADD ' .. due_index(queue.newest, new[2], 0), at, ordered(seq) .. key)
  end
  if queue.by_key then
    push(adds, 'ZADD :keys', 0, key)
  end
  push(adds, 'HSET :jobs', key, string.char(kind + 4 * where) .. stamp(at, seq) .. pack(rest))
  queue.woken = smaller(queue.woken, at)
end

local function add(new)
  local job, kind, at = new.job, new[3], due_time(new)
  if kind ~= PLAIN then
    uncancel(new)
  end
  if not job then
    add_simple(new, at)
  elseif not exists(job) then
    begin(job, new, at)
  elseif kind == KEYED then
    add_call(job, new, at)
  elseif kind == COLLECTING then
    add_value(job, new, at)
  end
  -- A plain job that is there already stays as it is: a repeat is harmless.
end
