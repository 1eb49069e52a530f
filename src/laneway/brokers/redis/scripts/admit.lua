--@include base
-- Have a shard know a worker that lives.
--
-- KEYS  the tag
-- args  worker
-- Changes :meta.

make_room()
call('HSET', KEYS[1] .. ':meta', 'w:' .. args.worker, 1)
return 1
