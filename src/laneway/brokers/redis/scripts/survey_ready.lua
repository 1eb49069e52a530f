--@include base
--@include payloads
--@include jobs
-- Which entries the lists of fresh jobs should have, and have not. Walks a list for each: only for a few.
--
-- KEYS  the queue
-- ARGV  then the entries: time, arrival and key
-- Answers {'ok', key, …} · {'stale'}.
-- Changes nothing.

local queue = queues[1]
if not queue.is_there or queue.is_moving then
  return {'stale'}
end
local said = {'ok'}
for i = 2, #ARGV do
  local key = ARGV[i]:sub(16)
  local blob = call('HGET', KEYS[1] .. ':jobs', key)
  if blob and where_of(blob) == READY and blob:sub(2, 16) == ARGV[i]:sub(1, 15) then
    -- From its end: what has come since the list was read is there.
    local list = KEYS[1] .. ready_index(queue.newest, shard_in(queue.newest, key))
    if not call('LPOS', list, ARGV[i], 'RANK', -1) then
      said[#said + 1] = key
    end
  end
end
return said
