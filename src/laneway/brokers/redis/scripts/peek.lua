--@include base
--@include payloads
--@include jobs
--@include lateness
-- When a worker should look at these queues.
--
-- KEYS  the queues
-- args  now    see enqueue
-- Answers for each queue when its earliest job is due, as text: '-inf' while it is being resharded, '' for none and for
-- paused ones; 'stale' for one that does not exist. Then the time by which that is judged.
-- Changes the bells: they are silenced if nothing is due, because the client knows when to come back. It also forgets
-- outdated entries at the heads of the lists.

local said, is_due = {}, false
for i, queue in ipairs(queues) do
  local at = ''
  if not queue.is_there then
    at, is_due = 'stale', true
  elseif queue.is_moving then
    at, is_due = '-inf', true
  elseif not queue.paused then
    local earliest
    each_shard(queue, function(layout, shard)
      earliest = smaller(earliest, first_due(queue, layout, shard))
    end)
    if earliest then
      is_due = is_due or earliest <= now
      at = string.format('%.17g', earliest)
    end
  end
  said[i] = at
end
if not is_due then
  for _, queue in ipairs(KEYS) do
    call('UNLINK', queue .. ':bell', queue .. ':bell:due')
  end
end
said[#said + 1] = string.format('%.17g', now)
return said
