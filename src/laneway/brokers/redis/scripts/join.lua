--@include base
-- Make a worker known. Joining again only tells which shards it serves.
--
-- KEYS  workers, leases, times
-- args  id, view, shards: as the client writes them; now
-- Ids are never used twice, so that one which was declared dead stays dead.

make_room() -- a worker that joins a full server will empty it
if call('HSETNX', KEYS[1], args.id, args.view) == 1 then
  call('HSET', KEYS[2], args.id, 0)
  call('HSET', KEYS[3], 'started:' .. args.id, now, 'seen:' .. args.id, now)
end
call('HSET', KEYS[1], 'shards:' .. args.id, args.shards)
return 1
