-- What was delivered out of outboxes, and lies in none any more, is remembered for ten minutes from now on.
--
-- KEYS  the tag
-- ARGV  the marks, see enqueue
-- Changes :delivered.

redis.call('UNLINK', KEYS[1] .. ':nothing') -- so that a full server takes what follows: it makes room
local time = redis.call('TIME')
local at = time[1] * 1e6 + time[2] + 6e8
for _, mark in ipairs(ARGV) do
  redis.call('ZADD', KEYS[1] .. ':delivered', 'XX', 'LT', at, mark)
end
return 1
