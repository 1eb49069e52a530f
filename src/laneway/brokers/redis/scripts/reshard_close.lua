--@include base
--@include payloads
--@include jobs
--@include moving
-- Close a shard that everything has left. It is remembered for a day that it was one: whoever read the queue's record
-- before must not open it again.
--
-- KEYS  the tag
-- Answers 0 when something is still in it.
-- Removes all keys of the tag but :meta.

local tag = tags[1]
if not tag.is_open then
  return 1
end
if tag.moving == 0 or not count_keys(tag.name).is_empty then
  return 0
end
-- A turn that is repeated must still be told what was refused here, and a sender that its call was made.
local known, fields = {}, call('HGETALL', tag.name .. ':meta')
for i = 1, #fields, 2 do
  local begins = fields[i]:sub(1, 2)
  if begins == 't:' or begins == 's:' then
    known[#known + 1] = fields[i]
    known[#known + 1] = fields[i + 1]
  end
end
for _, level in ipairs(tag.levels) do
  call('UNLINK', tag.name .. index_of(level))
end
for _, name in ipairs({'jobs', 'ready', 'due', 'keys', 'failed', 'failures', 'fkeys', 'aside', 'dead', 'dkeys',
  'cancelled', 'delivered', 'meta'}) do
  call('UNLINK', tag.name .. ':' .. name)
end
call('HSET', tag.name .. ':meta', 'closed', 1)
each('HSET', tag.name .. ':meta', known)
call('EXPIRE', tag.name .. ':meta', 86400)
return 1
