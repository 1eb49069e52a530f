--@include base
-- End a worker's lease for ever. Whatever it holds is given back afterwards, by whoever looks next.
--
-- KEYS  leases, times, dead
-- args  id; counter: only if the lease has not been renewed since (nil: in any case); now
-- Answers 0 when it was renewed, or had no lease.

local counter = call('HGET', KEYS[1], args.id)
if not counter or (args.counter and tonumber(counter) ~= args.counter) then
  return 0
end
call('HDEL', KEYS[1], args.id)
call('ZADD', KEYS[3], now, args.id)
call('HSET', KEYS[2], 'seen:' .. args.id, now)
return 1
