--@include base
--@include payloads
--@include jobs
--@include surveying
-- Look through a part of a queue for what is wrong. It takes as many calls as there are pages, and each is short.
--
-- KEYS  the queue
-- args  what    ':jobs', ':morgue', ':running', or an index
--       cursor  where to go on; '0' at first
-- Answers {'ok', where to go on or '0', what, text, …} · {'stale'}: there is no such queue, or it is being resharded, when
-- only claims can be looked at.
-- What is said: ready: an entry that the list must have · job, grave: a key whose
-- job or grave is not as it should be · hollow, hollow grave: one without payloads · claim: worker, NUL, token, NUL, key ·
-- unlisted: the key of a claim that its worker's list does not have · stray: a member that says what is not so.
-- Changes nothing.

local queue = queues[1]
if not queue.is_there or (queue.is_moving and args.what ~= ':running') then
  return {'stale'}
end
local said = {'ok', '0'}
local function say(what, text)
  said[#said + 1], said[#said + 2] = what, text
end

local look = {}
look[':jobs'] = function(key, blob, runs)
  local where, size, is_well = where_of(blob), 1, nil
  if blob:byte(1) < FAILED and where == READY then
    -- Most are so, and are not unpacked.
    is_well = not runs and (not has_keys(queue) or call('ZSCORE', queue.name .. ':keys', key))
  else
    local job = stored_job(queue, key, blob)
    size = true_size(job)
    is_well = size == job.size and runs == (where == ASIDE) and is_indexed(job, where)
  end
  if size == 0 then
    say('hollow', key)
  elseif not is_well then
    say('job', key)
  elseif where == READY then
    say('ready', blob:sub(2, 16) .. key)
  end
end
look[':morgue'] = function(key, blob, runs)
  local grave = stored_job(queue, key, blob, true)
  local size = true_size(grave)
  if size == 0 then
    say('hollow grave', key)
  elseif size ~= grave.size or not is_indexed(grave) then
    say('grave', key)
  end
end
look[':running'] = function(key, blob)
  local token, worker = claim_parts(blob)
  say('claim', worker .. '\0' .. string.format('%.17g', token) .. '\0' .. key)
  if tonumber(call('ZSCORE', queue.name .. ':w:' .. worker, key) or nil) ~= token then
    say('unlisted', key)
  end
end

local scan = look[args.what] and 'HSCAN' or 'ZSCAN'
local page = call(scan, queue.name .. args.what, args.cursor, 'COUNT', 500)
said[2] = page[1]
local names, values = {}, {}
for i = 1, #page[2], 2 do
  names[#names + 1], values[#values + 1] = page[2][i], page[2][i + 1]
end
if look[args.what] then
  local claims = values_of(queue.name .. ':running', names)
  for i, key in ipairs(names) do
    look[args.what](key, values[i], claims[i] and true)
  end
else
  for _, member in ipairs(strays_of(queue, args.what, names)) do
    say('stray', member)
  end
end
return said
