-- What is due, in order, and how it is handed out.

-- A lane is what one tag has of one priority. Candidates are read a few at a time.
local function new_lane(tag, level, step)
  return {tag = tag, level = level, step = step, index = tag.name .. index_of(level), read = {}, ready = {}, passed = 0,
    due = {}, due_read = 0, gone = {}}
end

local function read_ready(lane)
  if lane.level ~= 0 or lane.ready_ended then
    return
  end
  while #lane.ready == 0 do
    local first = lane.ready_read or 0
    local found = call('LRANGE', lane.tag.name .. ':ready', first, first + lane.step - 1)
    lane.ready_read = first + #found
    if #found == 0 then
      lane.ready_ended = true
      return
    end
    local keys, list = {}, {}
    for i, item in ipairs(found) do
      local at, seq = struct.unpack('>dI7', item)
      list[i] = {at = at, seq = seq, key = item:sub(16), place = first + i}
      keys[i] = list[i].key
    end
    load(lane.tag, keys)
    for _, item in ipairs(list) do
      local was = lane.tag.jobs[item.key].was
      -- Cancelled, moved or handed out since: its entry was left behind.
      if was and was.where == READY and was.seq == item.seq and was.at == item.at then
        lane.ready[#lane.ready + 1] = item
      else
        lane.outdated = item.place
      end
    end
    lane.next_ready = 1
  end
end

local function read_due(lane)
  if lane.due_ended then
    return
  end
  local found = call('ZRANGEBYSCORE', lane.index, '-inf', now, 'WITHSCORES', 'LIMIT', lane.due_read, lane.step)
  lane.due_read = lane.due_read + #found / 2
  lane.due, lane.next_due = {}, 1
  if #found == 0 then
    lane.due_ended = true
    return
  end
  local keys = {}
  for i = 1, #found, 2 do
    local key = found[i]:sub(8)
    keys[#keys + 1] = key
    lane.due[#lane.due + 1] = {at = tonumber(found[i + 1]), seq = struct.unpack('>I7', found[i]), key = key}
  end
  load(lane.tag, keys)
end

local function before(one, other)
  return one.at < other.at or (one.at == other.at and one.seq < other.seq)
end

-- The most overdue job of a lane, or nil.
local function head(lane)
  if lane.head ~= nil then
    return lane.head or nil
  end
  if not lane.next_ready or lane.next_ready > #lane.ready then
    lane.ready = {}
    read_ready(lane)
  end
  if not lane.next_due or lane.next_due > #lane.due then
    read_due(lane)
  end
  local ready, due = lane.ready[lane.next_ready or 1], lane.due[lane.next_due or 1]
  if ready and ready.at > now then
    ready = nil -- the clock has stepped back
  end
  if ready and due then
    lane.head = before(due, ready) and due or ready
  else
    lane.head = ready or due or false
  end
  return lane.head or nil
end

local function take_head(lane)
  local item = lane.head
  lane.head = nil
  if item.place then
    lane.next_ready = lane.next_ready + 1
    lane.passed = item.place
  else
    lane.next_due = lane.next_due + 1
  end
  return lane.tag.jobs[item.key], item
end

-- Forget the entries of the list up to the last that was taken, or outdated before any that was not.
local function trim(lane)
  local passed = lane.passed
  local waiting = lane.ready[lane.next_ready or 1]
  if waiting then
    passed = math.max(passed, waiting.place - 1)
  elseif lane.ready_read then
    passed = lane.ready_read
  end
  if passed > 0 then
    call('LTRIM', lane.tag.name .. ':ready', passed, -1)
  end
end

local function levels_of(wanted)
  local seen, levels = {[0] = true}, {0}
  for _, tag in ipairs(wanted) do
    for _, level in ipairs(tag.levels) do
      if not seen[level] then
        seen[level] = true
        levels[#levels + 1] = level
      end
    end
  end
  table.sort(levels, function(one, other) return one > other end)
  return levels
end

-- Forget a priority that nobody has any more.
local function tidy_levels(tag)
  local left = {}
  for _, level in ipairs(tag.levels) do
    if call('EXISTS', tag.name .. index_of(level)) == 1 then
      left[#left + 1] = level
    end
  end
  if #left < #tag.levels then
    tag.levels, tag.levels_changed = left, true
  end
end

local LIMITS = {[PLAIN] = 1, [KEYED] = 100, [COLLECTING] = 1000}

-- Queued → running, with its first payloads: calls only if they are due.
local function start(job, worker, token, pos, max_payloads)
  local limit = LIMITS[job.kind]
  if max_payloads and job.kind ~= PLAIN then
    limit = math.max(max_payloads, 1)
  end
  job.running = take_payloads(job, limit, job.kind == KEYED and now or nil)
  job.worker, job.token, job.pos, job.claim_changed = worker, token, pos, true
  job.attempt = job.attempt + 1
  job.since, job.next_at, job.floor = nil, nil, nil
  local chars = 0
  for _, entry in ipairs(job.running) do
    chars = chars + #entry.body
    if job.kind == KEYED then
      entry.attempt = (entry.attempt or 0) + 1
    end
  end
  if job.size > 0 then
    job.next_at = job.kind == KEYED and smallest_score(job) or job.at
    job.floor = job.kind == COLLECTING and job.running[#job.running].score or nil
  end
  change(job)
  return chars
end

-- A turn brings no more than this, whatever its limit: both sides must hold it in memory.
local CLAIM_CHARS = 16000000

-- Hand out what is due: `batch` jobs at a time from one tag, the most overdue first or, in order, round and round.
-- Returns the jobs in the order in which they were taken.
local function claim(wanted, worker, token, limit, batch, in_order, max_payloads)
  local taken, chars = {}, 0
  batch = math.max(batch, 1)
  for _, tag in ipairs(wanted) do
    tidy_levels(tag)
  end
  local step = math.max(batch, math.min(1000, math.ceil(limit / math.max(#wanted, 1)) + 8))
  for _, level in ipairs(levels_of(wanted)) do
    local lanes = {}
    for i, tag in ipairs(wanted) do
      lanes[i] = new_lane(tag, level, step)
    end
    local function take_from(lane)
      for _ = 1, batch do
        if #taken >= limit or chars > CLAIM_CHARS or not head(lane) then
          return
        end
        local job = take_head(lane)
        chars = chars + start(job, worker, token, #taken + 1, max_payloads)
        taken[#taken + 1] = job
      end
    end
    local found = true
    while found and #taken < limit and chars <= CLAIM_CHARS do
      found = false
      local best
      for _, lane in ipairs(lanes) do
        if head(lane) then
          if in_order then
            found = true
            take_from(lane)
          elseif not best or before(head(lane), head(best)) then
            best = lane
          end
        end
      end
      if best then
        found = true
        take_from(best)
      end
    end
    if level == 0 then
      for _, lane in ipairs(lanes) do
        trim(lane)
      end
    end
    if #taken >= limit or chars > CLAIM_CHARS then
      break
    end
  end
  return taken
end
