--@include base
--@include payloads
--@include jobs
-- Everything has arrived in a shard: from now on nothing more does, however late somebody comes with it.
--
-- KEYS  the tag
-- ARGV  then worker, turn, …: the last turns that the shards before it remember
-- args  sources     the shards that keys came from
--       seq, token  the last ones of all those: those given here must be larger
-- Answers {'ok'} · {'stale', tag}.
-- Changes :meta.

local tag = tags[1]
if not tag.is_open then
  return {'stale', 1}
end
local meta = tag.name .. ':meta'
make_room()
call('HSET', meta, 'arrivals', 0, 'seq', math.max(tag.seq, args.seq), 'token', math.max(tag.token, args.token))
for _, source in ipairs(args.sources) do
  call('HDEL', meta, 'b:' .. source)
  call('UNLINK', tag.name .. ':arrived:' .. source)
end
for i = 2, #ARGV, 2 do
  local known = call('HGET', meta, 't:' .. ARGV[i])
  -- Whoever comes late must not undo what the worker has done since.
  if not known or unpack_blob(known)[1] < unpack_blob(ARGV[i + 1])[1] then
    call('HSET', meta, 't:' .. ARGV[i], ARGV[i + 1])
  end
end
return {'ok'}
