--@include arguments
-- Batched commands, packing and other helpers.

-- A call that failed or was postponed stands before all others of its key.
local HEAD = -1e300

-- A number as 7 bytes that sort as the numbers do.
local function ordered(number)
  return struct.pack('>I7', number)
end

-- `command key a b c …` in as few calls as Lua's stack allows; the list must be of pairs where the command takes pairs.
local function each(command, key, list)
  for i = 1, #list, 4000 do
    call(command, key, unpack(list, i, math.min(i + 3999, #list)))
  end
end

-- The values of many fields of a hash.
local function values_of(key, fields)
  if #fields <= 4000 then
    return #fields == 0 and {} or call('HMGET', key, unpack(fields))
  end
  local values = {}
  for i = 1, #fields, 4000 do
    for _, value in ipairs(call('HMGET', key, unpack(fields, i, math.min(i + 3999, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- A server that is full refuses whatever adds, unless the script has removed something before. For small things without
-- which it could never be drained: remove nothing, so that they pass.
local function make_room()
  call('UNLINK', KEYS[1] .. ':nothing')
end

local function smaller(first, second)
  if first == nil then return second end
  if second == nil then return first end
  return math.min(first, second)
end
