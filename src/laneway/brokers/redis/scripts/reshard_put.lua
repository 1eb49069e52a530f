--@include base
--@include payloads
--@include jobs
--@include settling
--@include moving
--@include arriving
-- Let keys arrive in the shard where they belong, whole and as they were. Each once, whoever brings it how often.
--
-- KEYS  the tag
-- ARGV  then key, blob, … as take answers them
-- args  source      the shard that they leave; batch: the number of this batch of its
--       seq, token  the last ones of that shard: those given here must be larger
--       mends       not a resharding, but keys that were astray
--       now         see enqueue
-- Answers {'ok'} · {'stale', tag}.
-- Changes the jobs, the morgue, their indices and payloads.

local tag = tags[1]
if not tag.is_open then
  return {'stale', 1}
end
local may_come, has_begun = is_awaited(tag.name, args.source, args.batch)
if not may_come then
  return {'ok'}
end
make_room() -- the same will soon be dropped where it comes from
local arrived = tag.name .. ':arrived:' .. args.source
if not has_begun then
  -- The batch before has arrived as a whole, or this one would not have been taken.
  call('UNLINK', arrived)
  call('HSET', tag.name .. ':meta', 'b:' .. args.source, args.batch)
end
if args.seq > tag.seq then
  tag.seq, tag.seq_changed = args.seq, true
end
if args.token > tag.token then
  call('HSET', tag.name .. ':meta', 'token', args.token)
end
local keys = {}
for i = 2, #ARGV, 2 do
  keys[#keys + 1] = ARGV[i]
end
local is_here = {}
if has_begun then
  for i, here in ipairs(call('SMISMEMBER', arrived, unpack(keys))) do
    is_here[keys[i]] = here == 1
  end
end
load(tag, keys)
for i, key in ipairs(keys) do
  if not is_here[key] then
    local _, job, grave = unpack(unpack_blob(ARGV[2 * i + 1]))
    if job then
      arrive(tag.jobs[key], job)
    end
    if grave then
      rest_here(grave_of(tag, key), grave)
    end
  end
end
flush(tag)
each('SADD', arrived, keys)
return {'ok'}
