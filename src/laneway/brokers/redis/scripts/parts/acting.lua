-- The operator's actions on queued and dead jobs. They change jobs in memory: the caller flushes.

-- A keyed job is due with its earliest call, but not while it rests.
local function due_with_first(job)
  return math.max(smallest_score(job), job.rest or -math.huge)
end

local function move_call(job, entry, at)
  entry.at = at
  save_payload(job, entry, at)
end

local function calls_after(job, at)
  if job.lone then
    return job.lone.score > at and {job.lone} or {}
  end
  return entries_of(job, call('ZRANGEBYSCORE', order_key(job), string.format('(%.17g', at), '+inf', 'WITHSCORES'))
end

-- Have the calls of a keyed job that are due later be due then.
local function hasten(job, at)
  change(job)
  for _, later in ipairs(calls_after(job, at)) do
    move_call(job, later, at)
  end
  job.latest = job.latest and math.min(job.latest, at)
end

-- Have a queued job be due at another time: one call of it or, without `entry`, all of it.
local function reschedule(job, entry, at)
  change(job)
  job.since = nil
  if job.kind ~= KEYED then
    job.rest, job.at = nil, at
  elseif not entry then
    hasten(job, at)
    job.rest = at > smallest_score(job) and at or nil
    job.at = at
  else
    if entry.score == HEAD then
      job.rest = at
    else
      move_call(job, entry, at)
    end
    job.at = due_with_first(job)
  end
end

-- The same for what waits while its key is being run.
local function reschedule_aside(job, entry, at)
  change(job)
  if job.kind == KEYED then
    move_call(job, entry, at)
    job.next_at = smallest_score(job)
  else
    job.next_at, job.since = at, nil
  end
end

-- Nothing is set aside any more: what was known with it of the last call goes into the claim.
local function keep_latest(job)
  local token, worker, pos, record = claim_parts(job.claim_blob)
  local claimed = {}
  local _, entries = read_job(claimed, record)
  if claimed.latest ~= job.latest then
    claimed.latest = job.latest
    job.claim_blob = claim_head(token, worker) .. struct.pack('>I4', pos) .. pack_job(claimed, DUE, claimed.at, entries)
    job.claim_changed = true
    read_claim(job)
  end
end

-- Take one payload out of what is queued or set aside: another one may be the first now.
local function cancel_payload(job, entry)
  remove_payload(job, entry)
  if entry.score == HEAD then
    job.rest, job.retry, job.error = nil, -1, nil
  end
  if not job.worker then
    if job.size > 0 and job.kind == KEYED then
      job.at = due_with_first(job)
    end
  elseif job.size > 0 then
    if job.kind == KEYED then
      job.next_at = smallest_score(job)
    end
  else
    job.next_at, job.since = nil, nil
    if job.latest then
      keep_latest(job)
    end
  end
end

-- Dead → queued, or set aside while the key is being run: for that a plain job has no place. False: it stays dead.
local function revive(grave, job)
  if exists(job) and (job.kind ~= grave.kind or (job.kind == PLAIN and job.worker)) then
    return false
  end
  -- At once, because it makes room for all that follows.
  call('HDEL', grave.queue.name .. ':morgue', grave.key)
  local risen, first = take_payloads(grave, grave.size), nil
  if grave.kind == KEYED then
    for _, entry in ipairs(risen) do
      entry.deaths, entry.at = 0, math.min(entry.at, now)
      entry.score = entry.at
      first = smaller(first, entry.at)
    end
  end
  if job.worker then
    unite(job, risen)
    job.next_at = job.kind == KEYED and smaller(job.next_at, first) or now
    return true
  end
  if not exists(job) then
    begin_job(job, grave.kind)
    job.priority, job.expires, job.headers, job.error = grave.priority, grave.expires, grave.headers, grave.error
    job.attempt = grave.kind == PLAIN and grave.attempt or 0
  end
  unite(job, risen)
  job.at, job.retry, job.deaths, job.rest, job.since = now, -1, 0, nil, nil
  return true
end

-- Do something to each of args.keys. `act` says whether it did. Answers {'ok', how many}.
local function act_on_each(act)
  load(queues[1], args.keys)
  local count = 0
  for _, key in ipairs(args.keys) do
    if act(key) then
      count = count + 1
    end
  end
  flush(queues[1])
  wake()
  return {'ok', count}
end
