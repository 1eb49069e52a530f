--@include base
--@include payloads
--@include jobs
--@include moving
-- Take keys out of a shard that they leave, whole: job, payloads and grave. What somebody has taken out and not yet
-- brought away comes first, and alone.
--
-- KEYS  the tag
-- args  limit  how many; bytes: no more once their records are that large
--       only   these keys; nil: any that do not run
--       leaving_only  take out nothing more
-- Answers {'ok', seq, token, batch, key, spilled, blob, …} · {'stale', tag}. Spilled: 1 if the job has payloads besides
-- its record, 2 if the grave has, 3 if both have.
-- Changes the jobs, the morgue and their indices → :leaving.

local tag = tags[1]
if not tag.is_open then
  return {'stale', 1}
end
local leaving = tag.name .. ':leaving'

local function answer(found)
  local said = {'ok', tag.seq, tag.token, 0}
  for i = 1, #found, 2 do
    local record = unpack_blob(found[i + 1])
    said[4] = record[1]
    said[#said + 1] = found[i]
    said[#said + 1] = (is_spilled(record[2]) and 1 or 0) + (is_spilled(record[3]) and 2 or 0)
    said[#said + 1] = found[i + 1]
  end
  return said
end

local cursor = '0'
repeat
  local page = call('HSCAN', leaving, cursor, 'COUNT', args.limit)
  cursor = page[1]
  if #page[2] > 0 then
    return answer(page[2])
  end
until cursor == '0'

local keys, chosen = {}, {}

local function choose(found)
  for i, claim in ipairs(values_of(tag.name .. ':running', found)) do
    if not claim and not chosen[found[i]] and #keys < args.limit then
      chosen[found[i]] = true
      keys[#keys + 1] = found[i]
    end
  end
end

local function choose_from(hash)
  local place = '0'
  repeat
    local page = call('HSCAN', tag.name .. hash, place, 'COUNT', args.limit)
    place = page[1]
    local found = {}
    for i = 1, #page[2], 2 do
      found[#found + 1] = page[2][i]
    end
    choose(found)
  until place == '0' or #keys >= args.limit
end

if args.leaving_only then
  return answer({})
elseif args.only then
  choose(args.only)
else
  choose_from(':jobs')
  choose_from(':morgue')
end
if #keys == 0 then
  return answer({})
end

make_room()
local batch, bytes, taken = next_seq(tag), 0, {}
local jobs, graves = values_of(tag.name .. ':jobs', keys), values_of(tag.name .. ':morgue', keys)
load(tag, keys)
for i, key in ipairs(keys) do
  if jobs[i] or graves[i] then
    if bytes > args.bytes then
      break
    end
    bytes = bytes + #(jobs[i] or '') + #(graves[i] or '')
    taken[#taken + 1] = key
    taken[#taken + 1] = pack({batch, jobs[i], graves[i]})
    for _, gone in pairs({job = jobs[i] and tag.jobs[key], grave = graves[i] and grave_of(tag, key)}) do
      if gone then
        gone.size, gone.lone = 0, nil
        change(gone)
      end
    end
  end
end
flush(tag)
each('HSET', leaving, taken)
return answer(taken)
