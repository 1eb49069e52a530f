--@include base
--@include payloads
--@include jobs
--@include claiming
-- The second step of a turn on a Cluster, in one shard: claim what was decided after the first.
--
-- KEYS  the tag
-- args  worker, seq    see turn
--       token          of all claims of the turn; if one that is not smaller was used here meanwhile, nothing is claimed
--       places         one for each job to be claimed: where it stands among the claims of the turn. None of them: have
--                      the tag remember that the turn is over, so that a repeat claims nothing either
--       max_payloads   see turn; chars: how much at most
--       now            see enqueue
-- Answers {'ok', token, resharding, key, place, claim, key, place, claim, …} · {'stale'} · {'unknown'} · {'late'}, see
-- turn. If this turn has claimed here before: the token and the claims of then.
-- Changes queued jobs to running ones.

if stale_tag() then
  return {'stale'}
end
local worker, tag = args.worker, tags[1]
local known = call('HMGET', tag.name .. ':meta', 'w:' .. worker, 't:' .. worker)
if not known[1] then
  return {'unknown'}
end

local last = known[2] and unpack_blob(known[2]) or {}
local again = last[1] == args.seq
if last[1] and args.seq < last[1] then
  return {'late'}
end
local token, taken = args.token, {}
if again and last[4] then
  token = last[2]
  taken = claims_under(token, worker, tags)
else
  local count = #args.places
  if count > 0 and tag.moving == 0 and not tag.paused and tag.token < token then
    taken = claim(tags, worker, token, count, count, false, args.max_payloads, args.places, args.chars)
  end
  if #taken > 0 then
    call('HSET', tag.name .. ':meta', 'token', token)
  end
  redis.pcall('HSET', tag.name .. ':meta', 't:' .. worker, pack({args.seq, token, again and last[3] or {}, true}))
end
local said = {'ok', token, tag.moving}
for i = 1, #taken, 4 do
  local n = #said
  said[n + 1], said[n + 2], said[n + 3] = taken[i + 1], taken[i + 3], taken[i + 2]
end
return said
