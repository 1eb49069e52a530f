-- What every script begins with: its arguments, and the time.
local call = redis.call
local pack, unpack_blob = cmsgpack.pack, cmsgpack.unpack
local PLAIN, KEYED, COLLECTING = 0, 1, 2

local args = unpack_blob(ARGV[1])
local micros
do
  local time = call('TIME')
  micros = time[1] * 1e6 + time[2]
end
-- Tests bring a clock of their own. Tokens and arrival numbers come from the server's in any case.
local now = args.now or micros / 1e6

-- Wake one worker that waits for a queue: it looks, or begins at once if a job is due for certain.
local function ring(queue, is_due)
  local bell = is_due and queue .. ':bell:due' or queue .. ':bell'
  if call('EXISTS', bell) == 0 then
    call('LPUSH', bell, 1)
  end
end
