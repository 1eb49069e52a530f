--@include base
--@include payloads
--@include jobs
--@include moving
-- Put down payloads of a key that is arriving, until its job does.
--
-- KEYS  the tag
-- ARGV  then the key, and what read answers: member, score, what else is stored of it, …
-- args  source, batch, mends  see put
--       dead  they are of its grave
-- Answers {'ok'} · {'stale', tag}.
-- Changes :m:p:, :m:c:, :m:dp: or :m:dc: of that key.

if not tags[1].is_open then
  return {'stale', 1}
end
local key = ARGV[2]
local may_come, has_begun = is_awaited(KEYS[1], args.source, args.batch)
if not may_come or (has_begun and call('SISMEMBER', KEYS[1] .. ':arrived:' .. args.source, key) == 1) then
  return {'ok'} -- somebody else has brought it
end
local job = staged({tag = tags[1], key = key, dead = args.dead})
local members, calls = {}, {}
for i = 3, #ARGV, 3 do
  members[#members + 1], members[#members + 2] = ARGV[i + 1], ARGV[i]
  if ARGV[i + 2] ~= '' then
    calls[#calls + 1], calls[#calls + 2] = ARGV[i]:sub(8), ARGV[i + 2]
  end
end
make_room() -- the same will soon be dropped where it comes from
each('ZADD', order_key(job), members)
each('HSET', calls_key(job), calls)
return {'ok'}
