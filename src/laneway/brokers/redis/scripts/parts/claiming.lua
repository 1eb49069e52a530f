-- What is due, in order, and how it is handed out.

-- A lane is what one tag has of one priority. Candidates are read a few at a time: {at, seq, key, blob}.
local function new_lane(tag, level, step)
  return {tag = tag, level = level, step = step, index = index_of(level), ready = {}, next_ready = 1, ready_read = 0,
    due = {}, next_due = 1, due_read = 0}
end

local function read_ready(lane)
  lane.ready, lane.next_ready = {}, 1
  while #lane.ready == 0 and not lane.ready_ended do
    local first = lane.ready_read
    local found = call('LRANGE', lane.tag.name .. ':ready', first, first + lane.step - 1)
    lane.ready_read = first + #found
    lane.ready_ended = #found < lane.step
    local keys = {}
    for i, item in ipairs(found) do
      keys[i] = item:sub(16)
    end
    for i, blob in ipairs(values_of(lane.tag.name .. ':jobs', keys)) do
      -- Cancelled, moved or handed out since: then its entry was left behind.
      if blob and blob:sub(2, 16) == found[i]:sub(1, 15) and where_of(blob) == READY then
        local at, seq = struct.unpack('>dI7', blob, 2)
        table.insert(lane.ready, {at = at, seq = seq, key = keys[i], blob = blob, place = first + i})
      end
    end
  end
end

local function read_due(lane)
  lane.due, lane.next_due = {}, 1
  while #lane.due == 0 and not lane.due_ended do
    local found = call('ZRANGEBYSCORE', lane.tag.name .. lane.index, '-inf', now, 'LIMIT', lane.due_read, lane.step)
    lane.due_read = lane.due_read + #found
    lane.due_ended = #found < lane.step
    local keys = {}
    for i, member in ipairs(found) do
      keys[i] = member:sub(8)
    end
    for i, blob in ipairs(values_of(lane.tag.name .. ':jobs', keys)) do
      if blob then
        local at, seq = struct.unpack('>dI7', blob, 2)
        table.insert(lane.due, {at = at, seq = seq, key = keys[i], blob = blob, member = found[i]})
      end
    end
  end
end

local function before(one, other)
  return one.at < other.at or (one.at == other.at and one.seq < other.seq)
end

-- The most overdue job of a lane, or nil.
local function head(lane)
  if lane.head ~= nil then
    return lane.head or nil
  end
  if lane.level == 0 and lane.next_ready > #lane.ready and not lane.ready_ended then
    read_ready(lane)
  end
  if lane.next_due > #lane.due and not lane.due_ended then
    read_due(lane)
  end
  local ready, due = lane.ready[lane.next_ready], lane.due[lane.next_due]
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
  else
    lane.next_due = lane.next_due + 1
  end
  return item
end

-- Forget the entries of the list that were taken, and the outdated ones among them.
local function trim(lane)
  local waiting = lane.ready[lane.next_ready]
  local passed = waiting and waiting.place - 1 or lane.ready_read
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
local function start(job, worker, token, pos, max_payloads, most)
  local limit = LIMITS[job.kind]
  if max_payloads and job.kind ~= PLAIN then
    limit = math.max(max_payloads, 1)
  end
  job.since, job.next_at, job.floor = nil, nil, nil
  job.running = take_some(job, limit, job.kind == KEYED and now or nil, most)
  job.worker, job.token, job.pos = worker, token, pos
  job.claim_blob, job.claim_changed = pack_claim(job), true
  if job.size > 0 then
    job.next_at = job.kind == KEYED and smallest_score(job) or job.at
    job.floor = job.kind == COLLECTING and job.running[#job.running].score or nil
  end
  change(job)
end

-- Most jobs have one payload and have not failed: their record becomes their claim as it is.
local function start_lone(lane, item, worker, head_of_claim, pos, token)
  local started = lane.tag.started
  if not started then
    started = {}
    lane.tag.started = started
  end
  local blob = head_of_claim .. struct.pack('>I4', pos) .. item.blob
  push(started, 'HDEL :jobs', item.key)
  push(started, 'ZREM :keys', item.key)
  if item.member then
    push(started, 'ZREM ' .. lane.index, item.member)
  end
  push(started, 'HSET :running', item.key, blob)
  push(started, 'ZADD :w:' .. worker, token, item.key)
  return blob
end

local function write_started(tag, worker, levels)
  local started = tag.started
  if not started then
    return
  end
  tag.started = nil
  for _, what in ipairs({'HDEL :jobs', 'ZREM :keys'}) do
    each(what:sub(1, 4), tag.name .. what:sub(6), started[what])
  end
  for _, level in ipairs(levels) do
    local members = started['ZREM ' .. index_of(level)]
    if members then
      each('ZREM', tag.name .. index_of(level), members)
    end
  end
  each('HSET', tag.name .. ':running', started['HSET :running'])
  each('ZADD', tag.name .. ':w:' .. worker, started['ZADD :w:' .. worker])
end

-- A turn brings no more than this, whatever its limit: both sides must hold it in memory.
local CLAIM_CHARS = 16000000

-- Hand out what is due: `batch` jobs at a time from one tag, the most overdue first or, in order, round and round.
-- Returns {tag, key, claim, place} of each in the order in which they were taken. `places`: where they stand among the
-- claims of their turn, if that is not their order; `most`: characters.
local function claim(wanted, worker, token, limit, batch, in_order, max_payloads, places, most)
  local taken, chars = {}, 0
  most = most or CLAIM_CHARS
  batch = math.max(batch, 1)
  for _, tag in ipairs(wanted) do
    tidy_levels(tag)
  end
  local head_of_claim = claim_head(token, worker)
  local step = math.max(batch, math.min(1000, math.ceil(limit / math.max(#wanted, 1)) + 8))
  local levels = levels_of(wanted)
  for _, level in ipairs(levels) do
    local lanes = {}
    for i, tag in ipairs(wanted) do
      lanes[i] = new_lane(tag, level, step)
    end
    local function take_from(lane)
      for _ = 1, batch do
        if #taken >= limit or chars > most or not head(lane) then
          return
        end
        local item = take_head(lane)
        local tag, pos, blob = lane.tag, #taken + 1, nil
        pos = places and places[pos] or pos
        if item.blob:byte(1) < FAILED then
          blob = start_lone(lane, item, worker, head_of_claim, pos, token)
        else
          local job = job_of(tag, item.key)
          start(job, worker, token, pos, max_payloads, most - chars)
          blob = job.claim_blob
        end
        chars = chars + #blob
        taken[#taken + 1] = {tag, item.key, blob, pos}
      end
    end
    local found = true
    while found and #taken < limit and chars <= most do
      found = false
      local best
      for _, lane in ipairs(lanes) do
        if head(lane) then
          if in_order then
            found = true
            take_from(lane)
          elseif not best or before(lane.head, best.head) then
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
    if #taken >= limit or chars > most then
      break
    end
  end
  for _, tag in ipairs(wanted) do
    write_started(tag, worker, levels)
    flush(tag)
  end
  return taken
end

-- What `claim` would take from one tag: priority, time and arrival of each, one after the other.
local function due_jobs(tag, limit)
  local found = {}
  tidy_levels(tag)
  for _, level in ipairs(levels_of({tag})) do
    local lane = new_lane(tag, level, math.min(1000, limit + 8))
    if level == 0 then
      head(lane)
      local outdated = lane.ready[1] and lane.ready[1].place - 1 or lane.ready_read
      if outdated > 0 then
        call('LTRIM', tag.name .. ':ready', outdated, -1)
        lane.ready_read = lane.ready_read - outdated
      end
    end
    while #found < 3 * limit and head(lane) do
      local item, n = take_head(lane), #found
      found[n + 1], found[n + 2], found[n + 3] = level, item.at, item.seq
    end
  end
  flush(tag)
  return found
end

-- What a worker holds under a token, in the order in which it was handed out: {tag, key, claim, place}.
local function claims_under(token, worker, wanted)
  local claims = {}
  for _, tag in ipairs(wanted) do
    local keys = call('ZRANGEBYSCORE', tag.name .. ':w:' .. worker, token, token)
    for i, blob in ipairs(values_of(tag.name .. ':running', keys)) do
      local _, _, pos = claim_parts(blob)
      claims[#claims + 1] = {tag, keys[i], blob, pos}
    end
  end
  table.sort(claims, function(one, other) return one[4] < other[4] end)
  return claims
end
