-- Moves keys from one shard to another; see transfer.py.
--
-- In the shard that they leave:
--   :leaving  hash  key -> {batch, the job's record or false, the grave's record or false}: of one batch at a time.
--                   Their payloads, if they have several, stay where they are until they have arrived.
-- In the shard that they come to:
--   :arrived:<source>  set   the keys of the source's last batch that have arrived
--   :m:p: :m:c: :m:dp: :m:dc:  payloads that are arriving before their job does
--   :meta     b:<source>: the number of that batch; arrivals: 0 when no more are let in

-- What is left of a shard: jobs that do not run and graves, claims, and whether there is nothing at all.
local function count_keys(name)
  local jobs, aside = call('HLEN', name .. ':jobs'), call('ZCARD', name .. ':aside')
  local graves, leaving = call('HLEN', name .. ':morgue'), call('HLEN', name .. ':leaving')
  local running, sent = call('HLEN', name .. ':running'), call('HLEN', name .. ':outbox')
  return {
    left = math.max(jobs - aside, 0) + graves + leaving,
    running = running,
    is_empty = jobs + graves + leaving + running + sent == 0,
  }
end

local function is_spilled(record)
  return record and record:byte(1) >= SPILLED
end

-- Where the payloads of a job, or a grave, arrive before it does.
local function staged(job)
  return {tag = {name = job.tag.name .. ':m'}, key = job.key, kind = job.kind, dead = job.dead, size = job.size}
end

-- The number of the last batch that began to arrive here from a source; nil when nothing of this one may arrive.
local function is_awaited(name, source, batch)
  local known = call('HMGET', name .. ':meta', 'arrivals', 'b:' .. source)
  if known[1] == '0' and not args.mends then
    return false
  end
  return tonumber(known[2] or 0) <= batch, tonumber(known[2] or 0) == batch
end
