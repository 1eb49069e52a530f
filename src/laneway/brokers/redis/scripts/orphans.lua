--@include base
--@include payloads
--@include jobs
--@include settling
-- Payloads without a job, or a grave, that they would be of.
--
-- KEYS  the queue
-- args  queued, buried  keys that have payloads there
--       mend   put them into the morgue
--       error  what is said of them there
--       now    see enqueue
-- Answers {'ok', how many keys} · {'stale'}.
-- Changes the morgue.

local queue = queues[1]
if not queue.is_there or queue.is_moving then
  return {'stale'}
end

local function is_orphan(job)
  local record = call('HGET', queue.name .. (job.dead and ':morgue' or ':jobs'), job.key)
  return not (record and record:byte(1) >= SPILLED) and call('EXISTS', order_key(job)) == 1
end

local count = 0
local function look(keys, dead)
  for _, key in ipairs(keys) do
    local job = new_job(queue, key)
    job.dead = dead
    if is_orphan(job) then
      count = count + 1
      job.kind = call('EXISTS', calls_key(job)) == 1 and KEYED or COLLECTING
      job.size = call('ZCARD', order_key(job))
      local grave = grave_of(queue, key)
      -- Another kind's grave would be lost, and so these stay where they are.
      if args.mend and (grave.size == 0 or grave.kind == job.kind) then
        local found = first_payloads(job, job.size)
        call('UNLINK', order_key(job), calls_key(job))
        job.dead, job.at = nil, now
        bury(job, found, -1, args.error)
      end
    end
  end
  flush(queue)
end
look(args.queued, nil)
look(args.buried, true)
return {'ok', count}
