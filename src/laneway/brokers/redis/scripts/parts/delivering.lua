-- What a queue remembers of the outbox entries that were delivered to it, so that none is delivered twice (Cluster).

local function was_delivered(entry)
  return call('ZSCORE', KEYS[1] .. ':delivered', entry) and true
end

-- For a week: an entry that could not be removed from its outbox, because that server was away, is delivered again. Once it
-- is removed a shorter time is enough: see delivered.lua.
local function note_delivered(entry)
  local name = KEYS[1] .. ':delivered'
  call('ZADD', name, micros + 6048e8, entry)
  call('ZREMRANGEBYSCORE', name, '-inf', string.format('%.17g', micros))
  call('EXPIRE', name, 604800)
end
