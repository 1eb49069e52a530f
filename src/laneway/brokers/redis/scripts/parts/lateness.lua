-- How late a queue and its shards are, and how much of the queue is not due yet.
--@include lanes

-- When the first job of a shard is due, or was; nil if there is none.
local function first_due(queue, layout, shard)
  local lane = new_lane(queue, layout, shard, 0, 1)
  find(lane)
  trim(lane)
  local earliest = lane.at
  for _, level in ipairs({0, unpack(queue.levels)}) do
    local found = call('ZRANGE', queue.name .. due_index(layout, shard, level), 0, 0, 'WITHSCORES')
    earliest = smaller(earliest, tonumber(found[2]))
  end
  return earliest
end

-- How late the most overdue job of each shard is, by its number; shards without a job that is due have none. While a queue
-- is being resharded there may be more shards than it has.
local function lateness(queue)
  local late = {}
  each_shard(queue, function(layout, shard)
    local due = first_due(queue, layout, shard)
    if due and due <= now then
      late[shard] = math.max(late[shard] or 0, now - due)
    end
  end)
  return late
end

-- After the clock has stepped back, jobs that were due when they came are not any more. So many of them are looked at
-- one by one; beyond that the list is taken to hold nothing outdated.
local LOOKED_AT = 10000

local function not_yet_ready(queue, layout, shard)
  if queue.ready_at <= now then
    return 0
  end
  local name = queue.name .. ready_index(layout, shard)
  local count, place = 0, call('LLEN', name)
  while place > 0 do
    local found = call('LRANGE', name, math.max(place - 100, 0), place - 1)
    local keys, entries = {}, {}
    for i, item in ipairs(found) do
      local at, seq = struct.unpack('>dI7', item)
      entries[i] = {at = at, seq = seq, key = item:sub(16)}
      keys[i] = entries[i].key
    end
    load(queue, keys)
    for _, entry in ipairs(entries) do
      local was = queue.jobs[entry.key].was
      if entry.at > now and was and was.where == READY and was.seq == entry.seq then
        count = count + 1
      end
    end
    place = place - #found
    if entries[1].at <= now then
      return count
    end
    if count >= LOOKED_AT then
      return count + place
    end
  end
  return count
end

local function delayed_jobs(queue)
  local after = '(' .. string.format('%.17g', now)
  local count = call('ZCOUNT', queue.name .. ':aside', after, '+inf')
  each_shard(queue, function(layout, shard)
    count = count + not_yet_ready(queue, layout, shard)
    for _, level in ipairs({0, unpack(queue.levels)}) do
      count = count + call('ZCOUNT', queue.name .. due_index(layout, shard, level), after, '+inf')
    end
  end)
  return count
end
