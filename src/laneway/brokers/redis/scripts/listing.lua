--@include base
--@include payloads
--@include jobs
--@include existing
--@include views
--@include sorting
--@include sources
-- A part of a listing.
--
-- KEYS  the queue
-- args  which, order, reverse   see laneway.broker
--       place     begin beyond it: {value, at, seq, key}, see sources; nil: with the first one
--       count     how many jobs are wanted; payloads: how many to show of each
--       bytes     no more jobs when their payloads are that many; candidates: look at no more jobs than this
--       now       see enqueue
-- Answers {'ok', packed: views, and the place up to which it has looked, or false if that is the end, or true if it must be
-- asked again, because the keys are being sorted; the shard count} · {'stale'}.
-- Changes the index of keys.

local queue, which = queues[1], args.which
local is_queued = which ~= 'dead' and which ~= 'running'
local place = args.place
place = place and {value = place[1], at = place[2], seq = place[3], key = place[4]}

local function load_graves(keys)
  for i, blob in ipairs(values_of(queue.name .. ':morgue', keys)) do
    local grave = new_job(queue, keys[i])
    grave.dead = true
    if blob then
      read_job(grave, blob)
    end
    queue.graves[grave.key] = grave
  end
end

-- The job of an item, unless that is outdated or not one of those that are wanted.
local function shown(item, group)
  if which == 'dead' then
    return queue.graves[item.key]
  end
  local job = queue.jobs[item.key]
  if not is_queued then
    return job
  end
  local was = job.was
  if not was or was.where == ASIDE or (item.is_ready and (was.where ~= READY or was.seq ~= item.seq)) then
    return nil
  end
  if (group.are_fresh and job.retry >= 0) or (which == 'delayed' and job.at <= now) then
    return nil
  end
  return job
end

local view = which == 'dead' and dead_view or which == 'running' and running_view or queued_view
local groups = sources_of(queue, which, args.order)
if not groups then
  return {'ok', pack({{}, true}), queue.layouts[1].shards}
end
local views, bytes, looked_at, reached = {}, 0, 0, place
local is_full = false

local function look_at(items, group)
  local keys = {}
  for i, item in ipairs(items) do
    keys[i] = item.key
  end
  if which == 'dead' then
    load_graves(keys)
  else
    load(queue, keys)
  end
  for _, item in ipairs(items) do
    reached, looked_at = item, looked_at + 1
    local job = shown(item, group)
    if job then
      local seen, length = view(job, args.payloads, math.huge)
      views[#views + 1], bytes = seen, bytes + length
    end
    if #views >= args.count or bytes >= args.bytes or looked_at >= args.candidates then
      is_full = true
      return
    end
  end
end

local first, last, by = 1, #groups, 1
if args.reverse then
  first, last, by = last, first, -1
end
for i = first, last, by do
  local group, cursors = groups[i], {}
  for j, source in ipairs(group) do
    cursors[j] = cursor_of(source, place, args.reverse)
  end
  -- Few at first: their payloads may be large.
  local step = math.min(args.count, 16)
  while not is_full do
    local items = next_items(cursors, step)
    if #items == 0 then
      break
    end
    look_at(items, group)
    step = math.min(step * 2, 256)
  end
end
return {'ok', pack({views, is_full and {reached.value, reached.at, reached.seq, reached.key} or false}),
  queue.layouts[1].shards}
