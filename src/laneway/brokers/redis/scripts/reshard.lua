--@include base
--@include payloads
--@include jobs
-- Change the shard count of a queue, by one step: begin, move some entries to the new shards, or end. A step reads no job:
-- only the entries of the two indices that each shard has are moved. While it goes on nothing is claimed, and new jobs go to
-- the new shards.
--
-- KEYS  the queue
-- args  shards
--       limit, bytes  how many entries are moved at most, and how many bytes they are: the server does nothing else meanwhile
--       now           see enqueue
-- Answers {'ok', to move, moved, running, is it done} · {'busy', shards}: it is being changed to another count ·
-- {'stale'}: there is no such queue.
-- Changes :meta, :ready: and :due:, and wakes a worker at the beginning and the end.

local queue, meta = queues[1], KEYS[1] .. ':meta'
if not queue.is_there then
  return {'stale'}
end
local old, epoch = queue.layouts[1], tonumber(queue.layouts[1].name:match('^%d+'))
if queue.is_moving and queue.newest.shards ~= args.shards then
  return {'busy', queue.newest.shards}
end
if not queue.is_moving then
  if old.shards == args.shards then
    return {'ok', 0, 0, 0, 1}
  end
  make_room()
  local queued = call('HLEN', queue.name .. ':jobs') - call('ZCARD', queue.name .. ':aside')
  queue.newest = layout_of((epoch + 1) .. '/' .. args.shards)
  call('HSET', meta, 'next', queue.newest.name, 'to_move', queued + call('HLEN', queue.name .. ':running'), 'moved', 0)
  ring(queue.name, false)
end

local left, bytes = args.limit, args.bytes
local function is_over() return left <= 0 or bytes <= 0 end

-- Lists must stay in order by time and arrival: the first entries of all of them are moved, in that order, as far as no
-- unread entry of any list may come before them. Whether there may be more.
local LEAST = 8
local function move_ready()
  local found, page, bound = {}, math.max(math.ceil(left / old.shards), LEAST), nil
  local function is_before(one, other)
    return one.at < other.at or (one.at == other.at and one.seq < other.seq)
  end
  for shard = 0, old.shards - 1 do
    local list = queue.name .. ready_index(old, shard)
    local items, entry = call('LRANGE', list, 0, page - 1), nil
    for _, item in ipairs(items) do
      local at, seq = struct.unpack('>dI7', item)
      entry = {at = at, seq = seq, item = item, list = list}
      found[#found + 1] = entry
    end
    if #items == page and (not bound or is_before(entry, bound)) then
      bound = entry
    end
  end
  table.sort(found, is_before)
  local taken, adds = {}, {}
  for _, entry in ipairs(found) do
    if is_over() then
      break
    end
    local to = queue.name .. ready_index(queue.newest, shard_in(queue.newest, entry.item:sub(16)))
    adds[to] = adds[to] or {}
    table.insert(adds[to], entry.item)
    taken[entry.list] = (taken[entry.list] or 0) + 1
    left, bytes = left - 1, bytes - #entry.item
    if entry == bound then
      break
    end
  end
  for list, count in pairs(taken) do
    call('LTRIM', list, count, -1)
  end
  for list, items in pairs(adds) do
    each('RPUSH', list, items)
  end
  return bound ~= nil
end

local function move_due(shard, level)
  local from, adds, count = queue.name .. due_index(old, shard, level), {}, 0
  local found = call('ZRANGE', from, 0, left - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if is_over() then
      break
    end
    local to = queue.name .. due_index(queue.newest, shard_in(queue.newest, found[i]:sub(8)), level)
    adds[to] = adds[to] or {}
    table.insert(adds[to], found[i + 1])
    table.insert(adds[to], found[i])
    count, left, bytes = count + 1, left - 1, bytes - #found[i]
  end
  if count > 0 then
    call('ZREMRANGEBYRANK', from, 0, count - 1)
  end
  for to, entries in pairs(adds) do
    each('ZADD', to, entries)
  end
end

while not is_over() and move_ready() do end
local behind = 0
for shard = 0, old.shards - 1 do
  for _, level in ipairs({0, unpack(queue.levels)}) do
    if not is_over() then
      move_due(shard, level)
    end
    behind = behind + call('ZCARD', queue.name .. due_index(old, shard, level))
  end
  behind = behind + call('LLEN', queue.name .. ready_index(old, shard))
end

local counted = call('HMGET', meta, 'to_move', 'moved')
local to_move, running = tonumber(counted[1]), call('HLEN', queue.name .. ':running')
local moved = math.max(tonumber(counted[2]), math.min(to_move - behind, to_move))
make_room()
if behind > 0 or running > 0 then
  call('HSET', meta, 'moved', moved)
  return {'ok', to_move, moved, running, 0}
end
call('HSET', meta, 'layout', queue.newest.name)
call('HDEL', meta, 'next', 'to_move', 'moved')
ring(queue.name, false)
return {'ok', to_move, to_move, 0, 1}
