--@include base
-- Have a queue know a worker that lives.
--
-- KEYS  the queue
-- args  worker
--       leases  the key of the leases, on one server: then it is seen here that it lives
-- Answers 0 when it does not.
-- Changes :meta.

if args.leases and call('HEXISTS', args.leases, args.worker) == 0 then
  return 0
end
make_room()
call('HSET', KEYS[1] .. ':meta', 'w:' .. args.worker, 1)
return 1
