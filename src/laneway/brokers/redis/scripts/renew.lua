--@include base
-- Count up a worker's lease.
--
-- KEYS  leases, times
-- args  id; now
-- Answers 0 when the worker was declared dead or is not known.

if call('HEXISTS', KEYS[1], args.id) == 0 then
  return 0
end
make_room() -- whoever empties a full server must be able to stay alive
call('HINCRBY', KEYS[1], args.id, 1)
call('HSET', KEYS[2], 'seen:' .. args.id, now)
return 1
