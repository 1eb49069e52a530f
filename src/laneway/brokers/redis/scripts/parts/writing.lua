-- Writes changed jobs and graves back, with their indices. New calls of a running key go to `:aside`.

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

local function add_level(queue, level)
  if not queue.has_level then
    queue.has_level = {}
    for _, known in ipairs(queue.levels) do
      queue.has_level[known] = true
    end
  end
  if not queue.has_level[level] then
    queue.has_level[level], queue.levels_changed = true, true
    queue.levels[#queue.levels + 1] = level
  end
end

local function drop_index(job, removes)
  local was, key = job.was, job.key
  if was.where == ASIDE then
    push(removes, 'ZREM :aside', key)
    return
  end
  if was.where == DUE then
    push(removes, 'ZREM ' .. due_index(job.queue.newest, shard_of(job), was.priority), ordered(was.seq) .. key)
    if job.queue.is_moving then -- it may not have been moved yet
      local old = job.queue.layouts[1]
      push(removes, 'ZREM ' .. due_index(old, shard_in(old, key), was.priority), ordered(was.seq) .. key)
    end
  end
  if job.queue.by_key then
    push(removes, 'ZREM :keys', key)
  end
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
    push(adds, 'ZADD ' .. due_index(job.queue.newest, shard_of(job), job.priority), at, ordered(job.seq) .. key)
    if job.priority ~= 0 then
      add_level(job.queue, job.priority)
    end
  else
    push(adds, 'RPUSH ' .. ready_index(job.queue.newest, shard_of(job)), stamp(at, job.seq) .. key)
    job.queue.ready_at = at
    job.queue.ready_changed = true
  end
  if job.queue.by_key then
    push(adds, 'ZADD :keys', 0, key)
  end
  if job.retry >= 0 then
    push(adds, 'ZADD :failed', at, ordered(job.seq) .. key)
    push(adds, 'ZADD :failures', job.retry, by_time(at, job.seq) .. key)
    push(adds, 'ZADD :fkeys', 0, key)
  end
  job.queue.woken = smaller(job.queue.woken, at)
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
  -- The list is for those that have just come; others would not be in order there. Nor would these while older ones are
  -- still to be moved into it.
  local comes = job.is_new and job.priority == 0 and job.at <= now and job.at >= job.queue.ready_at
    and not job.queue.is_moving
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
local function flush(queue)
  if not (next(queue.changed) or next(queue.adds) or next(queue.graves_changed) or queue.seq_changed or queue.levels_changed) then
    return
  end
  local removes, adds = {}, queue.adds
  local mixed = #queue.new > 0 and next(adds)
  for _, grave in pairs(queue.graves_changed) do
    write_grave(grave, removes, adds)
  end
  queue.graves_changed = {}
  for _, job in pairs(queue.changed) do
    if not job.is_new then
      write_job(job, removes, adds)
    end
  end
  for _, job in ipairs(queue.new) do -- in the order in which they came
    write_job(job, removes, adds)
  end
  queue.changed, queue.new, queue.adds = {}, {}, {}
  if mixed then
    for what, list in pairs(adds) do
      if what:sub(1, 5) == 'RPUSH' then
        sort_ready(list)
      end
    end
  end
  for what, list in pairs(removes) do
    each(what:sub(1, 4), queue.name .. what:sub(6), list)
  end
  for what, list in pairs(adds) do
    local command, name = what:match('^(%u+) (.*)$')
    each(command, queue.name .. name, list)
  end
  local meta = {}
  if queue.seq_changed then
    meta[#meta + 1], meta[#meta + 2] = 'seq', queue.seq
  end
  if queue.ready_changed then
    meta[#meta + 1], meta[#meta + 2] = 'ready', queue.ready_at
  end
  if queue.levels_changed then
    meta[#meta + 1], meta[#meta + 2] = 'levels', pack(queue.levels)
  end
  if #meta > 0 then
    call('HSET', queue.name .. ':meta', unpack(meta))
  end
  queue.seq_changed, queue.ready_changed, queue.levels_changed = nil, nil, nil
end

-- Give up the index of keys when no operator has asked for it for long.
local function tidy_keys(queue)
  if queue.by_key and queue.by_key < now then
    call('UNLINK', queue.name .. ':keys')
    call('HDEL', queue.name .. ':meta', 'keys', 'keys_from')
    queue.by_key = nil
  end
end

-- A claim has ended: no worker holds it any more. At once, because it makes room for all that follows.
local function drop_claim(job)
  call('HDEL', job.queue.name .. ':running', job.key)
  call('ZREM', job.queue.name .. ':w:' .. job.worker, job.key)
  job.claim_blob = nil
end

-- Have a worker that waits look at each queue, or begin if there is something due for certain.
local function wake()
  for _, queue in ipairs(queues) do
    if queue.woken then
      ring(queue.name, queue.woken <= now and not queue.paused and not queue.is_moving)
    end
  end
end
