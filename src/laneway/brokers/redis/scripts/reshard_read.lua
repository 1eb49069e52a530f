--@include base
--@include payloads
--@include jobs
--@include moving
-- Payloads of a key that is leaving: they change no more.
--
-- KEYS  the tag
-- args  key; dead: those of its grave; start: how many have been read; bytes: no more once they are that large
-- Answers {from where to go on or 0, member, score, what else is stored of it or '', …}.
-- Changes nothing.

local job = {tag = {name = KEYS[1]}, key = args.key, dead = args.dead}
local said, bytes, start = {0}, 0, args.start
repeat
  local found = call('ZRANGE', order_key(job), start, start + 99, 'WITHSCORES')
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]:sub(8)
  end
  local calls = values_of(calls_key(job), ids)
  for i = 1, #found, 2 do
    local stored = calls[(i + 1) / 2] or ''
    said[#said + 1], said[#said + 2], said[#said + 3] = found[i], found[i + 1], stored
    bytes = bytes + #found[i] + #stored
  end
  start = start + #ids
  if #ids == 100 and bytes > args.bytes then
    said[1] = start
  end
until #ids < 100 or said[1] > 0
return said
