-- What is due in the shards of a queue, in order.
--
-- A lane is what one shard has of one priority: the list of jobs that were due when they came, for priority 0 only, and the
-- index of others by time. Each of these is a source. It is read some at a time, into columns: a table for each job would
-- cost more than all the rest. `next` is the first that is not taken, `count` the last one read, `read` how far that is.
-- Records, which may be large, are read when their turn comes, up to `loaded`: until then an entry may be outdated.

-- At first: so many that they are no burden even if they are large.
local FEW, MUCH = 4, 4e6

local function new_source(queue, index, is_list, step)
  return {queue = queue, name = queue.name .. index, is_list = is_list, step = step, next = 1, count = 0, loaded = 0,
    read = 0}
end

local function read_ready(source)
  local first = source.read
  local found = call('LRANGE', source.name, first, first + source.step - 1)
  if not found[1] then
    return 0
  end
  local at, seq, key = {}, {}, {}
  for i = 1, #found do
    local item = found[i]
    at[i], seq[i] = struct.unpack('>dI7', item)
    key[i] = item:sub(16)
  end
  source.at, source.seq, source.key, source.blob = at, seq, key, {}
  return #found
end

local function read_due(source)
  local found = call('ZRANGEBYSCORE', source.name, '-inf', now, 'WITHSCORES', 'LIMIT', source.read, source.step)
  if not found[1] then
    return 0
  end
  local at, seq, key = {}, {}, {}
  for i = 1, #found, 2 do
    local n, member = (i + 1) / 2, found[i]
    at[n], seq[n] = tonumber(found[i + 1]), struct.unpack('>I7', member)
    key[n] = member:sub(8)
  end
  source.at, source.seq, source.key, source.blob = at, seq, key, {}
  return #found / 2
end

local function read_on(source)
  local count = (source.is_list and read_ready or read_due)(source)
  source.read, source.ended = source.read + count, count < source.step
  source.next, source.count, source.loaded = 1, count, 0
  source.step = math.min(2 * source.step, 1000)
end

-- Read the records of the next ones. One that was cancelled, moved or handed out since has none any more.
local function load_records(source)
  local first = source.next
  local last = math.min(source.count, first + (source.most or FEW) - 1)
  local blobs = call('HMGET', source.queue.name .. ':jobs', unpack(source.key, first, last))
  local count, chars = 0, 0
  for i = first, last do
    local blob = blobs[i - first + 1]
    if blob and source.is_list then
      local state, at, seq = struct.unpack('>BdI7', blob)
      blob = state % 16 < 4 and at == source.at[i] and seq == source.seq[i] and blob
    end
    source.blob[i] = blob
    if blob then
      count, chars = count + 1, chars + #blob
    end
  end
  source.loaded = last
  source.most = count > 0 and math.max(1, math.floor(MUCH * count / chars)) or source.most
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

-- Whether that job is there. If not, the lane has another one.
local function is_there(lane)
  local source = lane.source
  local n = source.next
  if n > source.loaded then
    load_records(source)
  end
  if source.blob[n] then
    return true
  end
  source.next = n + 1
  advance(lane)
  return false
end

-- Find one that is. Whether there is one.
local function find(lane)
  while lane.source and not is_there(lane) do end
  return lane.source ~= nil
end

-- `step`: how many are likely to be wanted.
local function new_lane(queue, layout, shard, level, step)
  local lane = {}
  if level == 0 then
    lane[1] = new_source(queue, ready_index(layout, shard), true, step)
  end
  lane[#lane + 1] = new_source(queue, due_index(layout, shard, level), false, step)
  advance(lane)
  return lane
end

-- Forget the entries that were taken, and those between them of which there is nothing any more: all that come before the
-- next ones.
local function trim(lane)
  for i = 1, #lane do
    local source = lane[i]
    local passed = source.read - source.count + source.next - 1
    if passed > 0 then
      if source.is_list then
        call('LTRIM', source.name, passed, -1)
      else
        call('ZREMRANGEBYRANK', source.name, 0, passed - 1)
      end
      source.read = source.read - passed
    end
  end
end

-- The priorities of a queue, the highest first.
local function levels_of(queue)
  local levels = {0, unpack(queue.levels)}
  if levels[2] then
    table.sort(levels, function(one, other) return one > other end)
  end
  return levels
end

-- Forget a priority that no job has any more.
local function tidy_levels(queue)
  if not queue.levels[1] then
    return
  end
  local left = {}
  for _, level in ipairs(queue.levels) do
    local is_used = false
    each_shard(queue, function(layout, shard)
      is_used = is_used or call('EXISTS', queue.name .. due_index(layout, shard, level)) == 1
    end)
    if is_used then
      left[#left + 1] = level
    end
  end
  if #left < #queue.levels then
    queue.levels, queue.levels_changed = left, true
  end
end
