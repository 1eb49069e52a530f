-- The index of keys, which costs every job something: it is there only while an operator lists by key. It is made when that is
-- first asked for, a part at a time, and given up when nobody has asked for an hour. While it is made, whatever comes and
-- goes is written into it already.
local KEPT_S = 3600

-- Go on with making it. Whether it is whole.
local function sort_keys(queue)
  local name = queue.name
  if not queue.by_key then
    call('UNLINK', name .. ':keys')
    call('HSET', name .. ':meta', 'keys_from', '0')
  end
  if (queue.by_key or 0) < now + KEPT_S - 60 then
    queue.by_key = now + KEPT_S
    call('HSET', name .. ':meta', 'keys', queue.by_key)
  end
  local from = call('HGET', name .. ':meta', 'keys_from')
  if not from then
    return true
  end
  local page, keys = call('HSCAN', name .. ':jobs', from, 'COUNT', 250), {}
  for i = 1, #page[2], 2 do
    if where_of(page[2][i + 1]) ~= ASIDE then
      keys[#keys + 1] = 0
      keys[#keys + 1] = page[2][i]
    end
  end
  each('ZADD', name .. ':keys', keys)
  if page[1] == '0' then
    call('HDEL', name .. ':meta', 'keys_from')
    return true
  end
  call('HSET', name .. ':meta', 'keys_from', page[1])
  return false
end
