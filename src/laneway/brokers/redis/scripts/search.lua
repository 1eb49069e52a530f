-- Look through some of a key's values for the one with an identity.
--
-- KEYS  the sorted set that they lie in
-- ARGV  where to go on, '0' at first; about how many; what the member ends with
-- Answers {where to go on or '0', how many that were, their characters, the member or ''}.
-- Changes nothing.

local ending = ARGV[3]
local page = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local members, chars, found = page[2], 0, ''
for i = 1, #members, 2 do
  chars = chars + #members[i]
  if members[i]:sub(-#ending) == ending then
    found = members[i]
  end
end
return {page[1], #members / 2, chars, found}
