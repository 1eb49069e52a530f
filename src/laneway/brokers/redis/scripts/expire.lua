--@include base
-- End a worker's lease for ever. Whatever it holds is given back afterwards, by whoever looks next.
--
-- KEYS  leases, times, dead
-- args  id; counter: only if the lease has not been renewed since (nil: in any case); now
--       left  what died with a worker that leaves: remembered until all was given back
-- Answers 0 when it was renewed, or had no lease; 1 also when a worker that leaves is being left for the second time.

local counter = call('HGET', KEYS[1], args.id)
if not counter or (args.counter and tonumber(counter) ~= args.counter) then
  return args.left and call('HEXISTS', KEYS[2], 'left:' .. args.id) or 0
end
call('HDEL', KEYS[1], args.id)
if args.left then
  call('HSET', KEYS[2], 'left:' .. args.id, args.left)
end
call('ZADD', KEYS[3], now, args.id)
call('HSET', KEYS[2], 'seen:' .. args.id, now)
return 1
