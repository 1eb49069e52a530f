-- Store one simple job: due at once, nothing said but what every job has, its key free. This is what a program does most, so
-- its arguments are not packed, and it defines no function. If the job is not simple, nothing has been changed.
--
-- KEYS  the queue
-- ARGV  the name of the layout by which the client has chosen the shard; the shard; the job's kind; its key; what follows the
--       stamp in its record; who sends, and the number of this call among its calls (see enqueue); instead of the server's
--       time, the time or ''
-- Answers 1: it is stored, or was before · 0: this is not simple; enqueue must be called.
-- Changes :jobs, :ready: and :meta, and wakes a worker.

local call, root = redis.call, KEYS[1]
local layout, kind, key, seq = ARGV[1], ARGV[3], ARGV[4], ARGV[7]
local sent = 's:' .. ARGV[6]
local time = call('TIME')
local micros = time[1] * 1e6 + time[2]
local now = tonumber(ARGV[8]) or micros / 1e6

local meta = call('HMGET', root .. ':meta', 'layout', 'next', 'seq', 'ready', 'paused', 'keys', sent)
if meta[7] and tonumber(meta[7]:match('^%d+')) >= tonumber(seq) then
  return 1
end
if meta[1] ~= layout or meta[2] or meta[6] or now < tonumber(meta[4] or 0)
  or call('HEXISTS', root .. ':running', key) == 1 or (kind ~= '0' and call('EXISTS', root .. ':cancelled') == 1) then
  return 0
end
local arrival = math.max(tonumber(meta[3] or 0) + 1, micros)
local stamp = struct.pack('>dI7', now, arrival)
if call('HSETNX', root .. ':jobs', key, string.char(kind) .. stamp .. ARGV[5]) == 0 then
  return 0
end
call('RPUSH', root .. ':ready:' .. layout .. ':' .. ARGV[2], stamp .. key)
call('HSET', root .. ':meta', 'seq', arrival, 'ready', now, sent, seq .. ' ' .. time[1])
local bell = meta[5] and root .. ':bell' or root .. ':bell:due'
if call('EXISTS', bell) == 0 then
  call('LPUSH', bell, 1)
end
return 1
