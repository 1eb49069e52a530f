-- The shard of a key, and the Redis keys of the two indices that each shard has. All else belongs to the whole queue.
--
-- A layout is a set of shards: its name is `<epoch>/<shards>`. A queue that is being resharded has two layouts. Its new
-- entries go into the second one.

-- CRC-32 by half bytes. The client computes it far faster, and gives the shards of new jobs (see simple).
local HALF_BYTES = {[0] = 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
  0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c}

local function crc32(text)
  local band, bxor, rshift, crc = bit.band, bit.bxor, bit.rshift, -1
  for i = 1, #text do
    local byte = text:byte(i)
    crc = bxor(rshift(crc, 4), HALF_BYTES[band(bxor(crc, byte), 15)])
    crc = bxor(rshift(crc, 4), HALF_BYTES[band(bxor(crc, rshift(byte, 4)), 15)])
  end
  return bit.bnot(crc) % 4294967296
end

local function shard_in(layout, key)
  return crc32(key) % layout.shards
end

local function layout_of(name)
  return {name = name, shards = tonumber(name:match('%d+$'))}
end

local function ready_index(layout, shard)
  return ':ready:' .. layout.name .. ':' .. shard
end

local function due_index(layout, shard, level)
  local name = ':due:' .. layout.name .. ':' .. shard
  return level == 0 and name or name .. ':' .. level
end
