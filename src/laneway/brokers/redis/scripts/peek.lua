--@include base
--@include payloads
--@include jobs
--@include lanes
-- When somebody should look at these tags.
--
-- KEYS  the tags
-- args  bells  to be silenced if nothing is due: whoever asks knows when to come back
--       now    see enqueue
-- Answers for each tag when its earliest job is due, as text: '-inf' while it is being resharded, '' for none and for
-- paused ones; 'stale' for one that does not exist. Then the time by which that is judged.

local said, is_due = {}, false
for i, tag in ipairs(tags) do
  local at = ''
  if not tag.is_open then
    at, is_due = 'stale', true
  elseif tag.moving > 0 then
    at, is_due = '-inf', true
  elseif not tag.paused then
    local lane = new_lane(tag, 0, 1)
    find(lane)
    trim(lane)
    local earliest = lane.at
    for _, level in ipairs({0, unpack(tag.levels)}) do
      local found = call('ZRANGE', tag.name .. index_of(level), 0, 0, 'WITHSCORES')
      earliest = smaller(earliest, tonumber(found[2]))
    end
    if earliest then
      is_due = is_due or earliest <= now
      at = string.format('%.17g', earliest)
    end
  end
  said[i] = at
end
if args.bells and not is_due then
  for _, bell in pairs(args.bells) do
    call('UNLINK', bell, bell .. ':due')
  end
end
said[#said + 1] = string.format('%.17g', now)
return said
