-- What is due in a tag, in order.
--
-- A lane is what one tag has of one priority: the list of jobs that were due when they came, for priority 0 only, and the
-- index of others by time. Each of these is a source. It is read a few at a time, into columns: a table for each job would
-- cost more than all the rest. `next` is the first that is not taken, `count` the last one read, `read` how far that is.

-- At first: so many that they are no burden even if they are large.
local FEW, MUCH = 32, 4e6

local function new_source(tag, index, step)
  return {tag = tag, index = index, step = step, at = {}, seq = {}, key = {}, blob = {}, mark = {}, next = 1, count = 0,
    read = 0}
end

-- Its mark is its number in the list.
local function read_ready(source, step)
  local name, first = source.tag.name, source.read
  local found = call('LRANGE', name .. ':ready', first, first + step - 1)
  local keys = {}
  for i = 1, #found do
    keys[i] = found[i]:sub(16)
  end
  local blobs, n, chars = values_of(name .. ':jobs', keys), 0, 0
  for i = 1, #keys do
    local blob = blobs[i]
    if blob then
      local state, at, seq = struct.unpack('>BdI7', blob)
      local listed_at, listed_seq = struct.unpack('>dI7', found[i])
      -- Cancelled, moved or handed out since: then its entry was left behind.
      if at == listed_at and seq == listed_seq and state % 16 < 4 then
        n = n + 1
        source.at[n], source.seq[n], source.key[n], source.blob[n], source.mark[n] = at, seq, keys[i], blob, first + i
        chars = chars + #blob
      end
    end
  end
  return #found, n, chars
end

-- Its mark is the member of the index.
local function read_due(source, step)
  local name = source.tag.name
  local found = call('ZRANGEBYSCORE', name .. source.index, '-inf', now, 'LIMIT', source.read, step)
  local keys = {}
  for i = 1, #found do
    keys[i] = found[i]:sub(8)
  end
  local blobs, n, chars = values_of(name .. ':jobs', keys), 0, 0
  for i = 1, #keys do
    local blob = blobs[i]
    if blob then
      n = n + 1
      source.at[n], source.seq[n] = struct.unpack('>dI7', blob, 2)
      source.key[n], source.blob[n], source.mark[n] = keys[i], blob, found[i]
      chars = chars + #blob
    end
  end
  return #found, n, chars
end

local function read_on(source)
  local step = math.min(source.step, source.most or FEW)
  repeat
    local found, n, chars = (source.index and read_due or read_ready)(source, step)
    source.read, source.ended = source.read + found, found < step
    source.next, source.count = 1, n
    source.most = n > 0 and math.max(1, math.floor(MUCH * n / chars)) or source.most
    step = math.min(2 * step, 1000)
  until n > 0 or source.ended
end

-- Find the most overdue job of a lane: its `at` and `seq`, and the `source` that has it; nil if there is none.
local function advance(lane)
  local best, at, seq
  for i = 1, #lane do
    local source = lane[i]
    if source.next > source.count and not source.ended then
      read_on(source)
    end
    local n = source.next
    if n <= source.count then
      local its_at, its_seq = source.at[n], source.seq[n]
      -- One of the list may not be due, if the clock has stepped back.
      if its_at <= now and (not best or its_at < at or (its_at == at and its_seq < seq)) then
        best, at, seq = source, its_at, its_seq
      end
    end
  end
  lane.source, lane.at, lane.seq = best, at, seq
end

-- `step`: how many are likely to be wanted.
local function new_lane(tag, level, step)
  local lane = {tag = tag}
  if level == 0 then
    lane.ready = new_source(tag, nil, step)
    lane[1] = lane.ready
  end
  lane[#lane + 1] = new_source(tag, index_of(level), step)
  advance(lane)
  return lane
end

-- Forget the entries of the list that were taken, and the outdated ones among them.
local function trim(lane)
  local ready = lane.ready
  if not ready then
    return
  end
  local passed = ready.next <= ready.count and ready.mark[ready.next] - 1 or ready.read
  if passed > 0 then
    call('LTRIM', lane.tag.name .. ':ready', passed, -1)
    ready.read = ready.read - passed
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
  if levels[2] then
    table.sort(levels, function(one, other) return one > other end)
  end
  return levels
end

-- Forget a priority that nobody has any more.
local function tidy_levels(tag)
  if not tag.levels[1] then
    return
  end
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
