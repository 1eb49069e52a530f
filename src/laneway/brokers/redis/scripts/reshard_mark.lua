--@include base
--@include payloads
--@include jobs
--@include moving
-- Have a shard be left: nothing is claimed from it any more, and no key comes into it that is not there.
--
-- KEYS  the tag
-- args  shards  how many there will be
-- Answers {'ok', jobs and graves to be moved, those that run included} · {'stale', tag}.
-- Changes :meta.

if not tags[1].is_open then
  return {'stale', 1}
end
make_room()
call('HSET', KEYS[1] .. ':meta', 'moving', args.shards)
local count = count_keys(KEYS[1])
return {'ok', count.left + count.running}
