-- The jobs of a queue in some order, from any place on, in either direction.
--
-- A place in an order is {value, at, seq, key}: what the order is by, then what decides between equals: due time or
-- burial, arrival, key. In an order by key, `at` and `seq` are 0: nothing is left to be decided.
--
-- A source has a `size`, and reads the items from one number to another: places, in order. Those numbered below
-- `first` do not belong to the listing.

-- Lua's own comparison of texts goes by the server's locale.
local function sign_of_texts(one, other)
  for i = 1, math.min(#one, #other) do
    local first, second = one:byte(i), other:byte(i)
    if first ~= second then
      return first - second
    end
  end
  return #one - #other
end

local function sign_of(one, other)
  if one == other then
    return 0
  end
  if type(one) == 'string' then
    return sign_of_texts(one, other)
  end
  return one < other and -1 or 1
end

-- Negative when one place is before the other, 0 when they are the same.
local function compare(one, other)
  local sign = sign_of(one.value, other.value)
  if sign == 0 then sign = sign_of(one.at, other.at) end
  if sign == 0 then sign = sign_of(one.seq, other.seq) end
  if sign == 0 then sign = sign_of(one.key, other.key) end
  return sign
end

-- -- what is in an index ---------------------------------------------------------------------------------------------

local function of_times(member, score)
  return {value = score, at = score, seq = struct.unpack('>I7', member), key = member:sub(8)}
end

local function of_keys(member)
  return {value = member, at = 0, seq = 0, key = member}
end

-- The time that by_time has written.
local function read_time(bytes)
  if bytes:byte(1) < 128 then
    bytes = bytes:gsub('.', function(byte) return string.char(255 - byte:byte()) end)
  else
    bytes = string.char(bytes:byte(1) - 128) .. bytes:sub(2)
  end
  return (struct.unpack('>d', bytes))
end

local function of_failures(member, score)
  return {value = score, at = read_time(member:sub(1, 8)), seq = struct.unpack('>I7', member, 9), key = member:sub(16)}
end

-- -- sources ---------------------------------------------------------------------------------------------------------

-- `value`: of all items, if it is not what they are sorted by in the index.
local function index_source(name, item_of, value)
  local function read(first, last)
    local found, items = call('ZRANGE', name, first, last, 'WITHSCORES'), {}
    for i = 1, #found, 2 do
      local item = item_of(found[i], tonumber(found[i + 1]))
      item.value = value or item.value
      items[#items + 1] = item
    end
    return items
  end
  return {size = call('ZCARD', name), first = 0, read = read}
end

local function ready_source(name, value)
  local function read(first, last)
    local items = call('LRANGE', name, first, last)
    for i, item in ipairs(items) do
      local at, seq = struct.unpack('>dI7', item)
      items[i] = {value = value or at, at = at, seq = seq, key = item:sub(16), is_ready = true}
    end
    return items
  end
  return {size = call('LLEN', name), first = 0, read = read}
end

-- A few items that are in no index.
local function sorted_source(items)
  table.sort(items, function(one, other) return compare(one, other) < 0 end)
  return {size = #items, first = 0, read = function(first, last) return {unpack(items, first + 1, last + 1)} end}
end

-- What runs is in no index: it is never much.
local function running_source(queue, by_key)
  local name, items = queue.name .. ':running', {}
  local keys = call('HKEYS', name)
  if by_key then
    for i, key in ipairs(keys) do
      items[i] = of_keys(key)
    end
  else
    -- A claim may be large, so that few of them are held at a time.
    for i = 1, #keys, 50 do
      for j, blob in ipairs(call('HMGET', name, unpack(keys, i, math.min(i + 49, #keys)))) do
        local _, _, _, record = claim_parts(blob)
        local at, seq = struct.unpack('>dI7', record, 2)
        items[#items + 1] = {value = at, at = at, seq = seq, key = keys[i + j - 1]}
      end
    end
  end
  return sorted_source(items)
end

-- How many items of a source are before a place or, if so wanted, at it.
local function count_before(source, place, and_at)
  local low, high = 0, source.size
  while low < high do
    local middle = math.floor((low + high) / 2)
    local sign = compare(source.read(middle, middle)[1], place)
    if sign < 0 or (and_at and sign == 0) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- All queued jobs by due time, or with `after` those that are due later. They lie in several places.
local function queued_sources(queue, after, value)
  local sources = {}
  each_shard(queue, function(layout, shard)
    local ready = ready_source(queue.name .. ready_index(layout, shard), value)
    sources[#sources + 1] = ready
    if after then -- the list has none of those, unless the clock has stepped back
      ready.first = queue.ready_at <= after and ready.size
        or count_before(ready, {value = value or after, at = after, seq = math.huge, key = ''})
    end
    for _, level in ipairs({0, unpack(queue.levels)}) do
      local name = queue.name .. due_index(layout, shard, level)
      local due = index_source(name, of_times, value)
      sources[#sources + 1] = due
      due.first = after and call('ZCOUNT', name, '-inf', string.format('%.17g', after)) or 0
    end
  end)
  return sources
end

-- So many are sorted here rather than looked for among all that are queued.
local FEW = 1000

-- Those that are due later than now, by key; nil if they are more than a few.
local function few_delayed(queue)
  local sources, count = queued_sources(queue, now), 0
  for _, source in ipairs(sources) do
    count = count + math.max(source.size - source.first, 0)
  end
  if count > FEW then
    return nil
  end
  local items, seen = {}, {}
  for _, source in ipairs(sources) do
    for _, item in ipairs(source.first < source.size and source.read(source.first, source.size - 1) or {}) do
      if not seen[item.key] then
        seen[item.key] = true
        items[#items + 1] = of_keys(item.key)
      end
    end
  end
  return sorted_source(items)
end

-- The sources of a listing, in groups: all of one group come before all of the next. False while keys are being sorted.
local function sources_of(queue, which, order)
  local name = queue.name
  if which == 'running' then
    return {{running_source(queue, order == 'key')}}
  elseif which == 'dead' then
    return {{order == 'key' and index_source(name .. ':dkeys', of_keys) or index_source(name .. ':dead', of_times)}}
  elseif order == 'key' then
    if which == 'retries' then
      return {{index_source(name .. ':fkeys', of_keys)}}
    end
    local few = which == 'delayed' and few_delayed(queue)
    if few then
      return {{few}}
    end
    return sort_keys(queue) and {{index_source(name .. ':keys', of_keys)}}
  elseif order == 'perform_at' and which == 'retries' then
    return {{index_source(name .. ':failed', of_times)}}
  end
  local after = which == 'delayed' and now or nil
  if order == 'perform_at' then
    return {queued_sources(queue, after)}
  end
  local failures = {index_source(name .. ':failures', of_failures)}
  if which == 'retries' then
    return {failures}
  end
  -- Those that have not failed are in no index by retry_count; they come before all others, by due time.
  local fresh = queued_sources(queue, after, -1)
  fresh.are_fresh = true
  return {fresh, failures}
end

-- -- reading in order ------------------------------------------------------------------------------------------------

-- Reads a source from beyond a place on, or from its beginning; backwards if so wanted.
local function cursor_of(source, place, reverse)
  local next
  if reverse then
    next = (place and count_before(source, place) or source.size) - 1
  else
    next = math.max(source.first, place and count_before(source, place, true) or 0)
  end
  return {source = source, next = next, reverse = reverse, items = {}, taken = 0}
end

-- The item that a cursor is at; nil at the end.
local function item_at(cursor, step)
  if cursor.taken < #cursor.items then
    return cursor.items[cursor.taken + 1]
  end
  local source, first, last = cursor.source, cursor.next, nil
  if cursor.reverse then
    first, last = math.max(cursor.next - step + 1, source.first), cursor.next
  else
    last = math.min(first + step, source.size) - 1
  end
  if last < first then
    return nil
  end
  local items = source.read(first, last)
  if cursor.reverse then
    for i = 1, math.floor(#items / 2) do
      items[i], items[#items + 1 - i] = items[#items + 1 - i], items[i]
    end
  end
  cursor.items, cursor.taken, cursor.next = items, 0, cursor.reverse and first - 1 or last + 1
  return items[1]
end

-- The next items, of all cursors, in order: `step` at most.
local function next_items(cursors, step)
  local items = {}
  while #items < step do
    local best, best_item
    for _, cursor in ipairs(cursors) do
      local item = item_at(cursor, step)
      if item then
        local sign = best and compare(item, best_item) or 0
        if not best or (cursor.reverse and sign > 0) or (not cursor.reverse and sign < 0) then
          best, best_item = cursor, item
        end
      end
    end
    if not best then
      break
    end
    best.taken = best.taken + 1
    items[#items + 1] = best_item
  end
  return items
end
