-- How late a tag is, and how much of it is not due yet. Needs lanes.

-- How late the most overdue job is that is queued; nil if none is due.
local function lateness(tag)
  local lane = new_lane(tag, 0, 1)
  find(lane)
  trim(lane)
  local earliest = lane.at
  for _, level in ipairs(tag.levels) do
    local found = call('ZRANGE', tag.name .. index_of(level), 0, 0, 'WITHSCORES')
    earliest = smaller(earliest, tonumber(found[2]))
  end
  return earliest and earliest <= now and now - earliest or nil
end

-- After the clock has stepped back, jobs that were due when they came are not any more. So many of them are looked at
-- one by one; beyond that the list is taken to hold nothing outdated.
local LOOKED_AT = 10000

local function not_yet_ready(tag)
  if tag.ready_at <= now then
    return 0
  end
  local name, count, place = tag.name .. ':ready', 0, call('LLEN', tag.name .. ':ready')
  while place > 0 do
    local found = call('LRANGE', name, math.max(place - 100, 0), place - 1)
    local keys, entries = {}, {}
    for i, item in ipairs(found) do
      local at, seq = struct.unpack('>dI7', item)
      entries[i] = {at = at, seq = seq, key = item:sub(16)}
      keys[i] = entries[i].key
    end
    load(tag, keys)
    for _, entry in ipairs(entries) do
      local was = tag.jobs[entry.key].was
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

local function delayed_jobs(tag)
  local after = '(' .. string.format('%.17g', now)
  local count = not_yet_ready(tag) + call('ZCOUNT', tag.name .. ':aside', after, '+inf')
  for _, level in ipairs({0, unpack(tag.levels)}) do
    count = count + call('ZCOUNT', tag.name .. index_of(level), after, '+inf')
  end
  return count
end
