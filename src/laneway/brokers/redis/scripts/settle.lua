--@include base
--@include payloads
--@include jobs
--@include adding
--@include settling
--@include claiming
--@include turning
-- The first step of a turn on a Cluster, in one shard: settle what is finished, and say what could be claimed.
--
-- KEYS  the tag
-- args  worker, seq            see turn
--       finished, settlements  see turn; a settlement has no jobs to send, but an outbox {id, text, …} and its arrival
--       remember               remember the turn though nothing is settled: one tag must
--       look                   only say which of the settlements would be accepted
--       peek                   of how many due jobs to tell
--       floor                  the token must be larger
--       now                    see enqueue
-- Answers {'ok', token, claimed, refused keys, resharding, woken, due, again, key, place, claim, key, place, claim, …}:
-- `due` is packed, see due_jobs. `again` is 1 when this turn was known here, `claimed` is 1 when this turn has taken its second step here, and then the claims that
-- it brought follow. Or {'held', settlement, …} · {'stale'} · {'unknown'}: the worker is not known here · {'late'}, see
-- turn · {'closed', refused keys}: this turn was known here when the shard was closed.
-- Changes everything but other workers' claims. What a run has sent lies in the outbox from here on, until somebody
-- has delivered it: this worker at once or, if it dies here, any other in its next sweep.

local worker, tag = args.worker, tags[1]
local known = call('HMGET', tag.name .. ':meta', 'w:' .. worker, 't:' .. worker)
local last = known[2] and unpack_blob(known[2]) or {}
local again = last[1] == args.seq
if not tag.is_open then
  return again and {'closed', last[3]} or {'stale'}
end
if not known[1] then
  return {'unknown'}
end
if last[1] and args.seq < last[1] then
  return {'late'}
end

if args.look then
  local said = {'held'}
  if not again then
    local _, held = sort_out(worker)
    for _, told in ipairs(held) do
      said[#said + 1] = told.place
    end
  end
  return said
end

local token, refused = math.max(args.floor + 1, micros, tag.token + 1), {}
if again then
  token, refused = last[2], last[3]
elseif args.remember or #args.settlements + #args.finished > 0 then
  local held, gone, _
  refused, held, _, _, gone = sort_out(worker)
  end_runs(worker, held, {}, gone)
  for _, told in ipairs(held) do
    local outbox = told.outbox or {}
    for i = 1, #outbox, 2 do
      call('HSET', tag.name .. ':outbox', outbox[i], string.format('%.17g\n', now) .. worker .. '\n' .. outbox[i + 1])
    end
  end
  -- pcall: that nothing happened need not be remembered when there is no room for it.
  redis.pcall('HSET', tag.name .. ':meta', 't:' .. worker, pack({args.seq, token, refused, false}))
end

local claimed = again and last[4]
local peeks = not claimed and args.peek > 0 and tag.moving == 0 and not tag.paused
local said = {'ok', token, claimed and 1 or 0, refused, tag.moving, tag.woken and 1 or 0,
  pack(peeks and due_jobs(tag, args.peek) or {}), again and 1 or 0}
local held = claimed and claims_under(token, worker, tags) or {}
for i = 1, #held, 4 do
  local n = #said
  said[n + 1], said[n + 2], said[n + 3] = held[i + 1], held[i + 3], held[i + 2]
end
return said
