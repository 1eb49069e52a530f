--@include base
--@include payloads
--@include jobs
-- Which entries the list of fresh jobs should have, and has not. Walks the list for each: only for a few.
--
-- KEYS  the tag
-- ARGV  then the entries: time, arrival and key
-- Answers {'ok', key, …} · {'stale', tag}.
-- Changes nothing.

if not tags[1].is_open or tags[1].moving > 0 then
  return {'stale', 1}
end
local said = {'ok'}
for i = 2, #ARGV do
  local key = ARGV[i]:sub(16)
  local blob = call('HGET', KEYS[1] .. ':jobs', key)
  if blob and where_of(blob) == READY and blob:sub(2, 16) == ARGV[i]:sub(1, 15) then
    -- From its end: what has come since the list was read is there.
    if not call('LPOS', KEYS[1] .. ':ready', ARGV[i], 'RANK', -1) then
      said[#said + 1] = key
    end
  end
end
return said
