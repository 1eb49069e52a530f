--@include base
--@include payloads
--@include jobs
--@include existing
--@include views
-- Where a job is, or one payload of it.
--
-- KEYS  the queue
-- args  key; identity: of the payload, nil for the job as a whole
--       now: see enqueue
-- Answers {'ok', packed: 'running', 'delayed', 'queued', 'dead', 'cancelled' or 'gone'} · {'search', name}: see
-- payloads · {'stale'}.
-- Changes nothing.

local queue, id = queues[1], args.identity
local job, grave = job_of(queue, args.key), grave_of(queue, args.key)

local name = to_search(job) or to_search(grave)
if name then
  return {'search', name}
end

local function job_status()
  if job.worker then
    return 'running'
  end
  return job.size > 0 and due_status(job.at)
end

local function payload_status()
  local entry = payload_of(job, id)
  if entry then
    local at = job.next_at or job.at
    if job.kind == KEYED then
      at = math.max(at, entry.at)
    end
    return due_status(at)
  end
  read_claim(job)
  for _, running in ipairs(job.running or {}) do
    if running.id == id then
      return 'running'
    end
  end
end

local function is_dead()
  return grave.size > 0 and (not id or payload_of(grave, id))
end

local function is_cancelled()
  local cancelled = queue.name .. ':cancelled'
  return call('ZSCORE', cancelled, args.key .. '\0') or (id and call('ZSCORE', cancelled, args.key .. '\0' .. id))
end

local status = id and payload_status() or (not id and job_status())
return {'ok', pack(status or (is_dead() and 'dead') or (is_cancelled() and 'cancelled') or 'gone')}
