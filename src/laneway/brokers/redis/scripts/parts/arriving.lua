-- What becomes of a key that arrives in a shard. Nothing of it should be there; if something is, they are united.

local function record_of(job, record)
  local moved = new_job(job.tag, job.key)
  moved.dead = job.dead
  read_job(moved, record)
  return moved
end

-- Its payloads, when there is no room to leave them as they are.
local function unpacked(moved)
  if moved.lone then
    return {moved.lone}
  end
  local waiting = staged(moved)
  local entries = first_payloads(waiting, waiting.size)
  call('UNLINK', order_key(waiting), calls_key(waiting))
  return entries
end

-- Nothing is here: it stays as it was.
local function take_over(job, record)
  read_job(job, record)
  if not job.lone then
    local waiting = staged(job)
    for from, to in pairs({[order_key(waiting)] = order_key(job), [calls_key(waiting)] = calls_key(job)}) do
      if call('EXISTS', from) == 1 then
        call('RENAME', from, to)
      end
    end
    job.size = call('ZCARD', order_key(job))
  end
  if job.size > 0 then
    change(job)
  end
end

-- Something is queued here: as if it had been enqueued onto what arrives.
local function become_senior(job, moved)
  job.retry, job.attempt, job.deaths, job.error = moved.retry, moved.attempt, moved.deaths, moved.error
  job.rest, job.since, job.priority = moved.rest, moved.since, moved.priority
  job.latest = moved.latest and job.latest and math.max(moved.latest, job.latest) or moved.latest or job.latest
  if moved.kind == KEYED and not moved.rest then
    job.at = math.min(job.at, moved.at)
  else
    job.at = moved.at
  end
end

-- A job arrives.
local function arrive(job, record)
  if not exists(job) then
    take_over(job, record)
    return
  end
  local moved = record_of(job, record)
  local entries = unpacked(moved)
  if moved.kind ~= job.kind then
    bury(moved, entries, moved.retry, 'Its key belongs to a job of another kind; it was found astray.')
  elseif job.kind ~= PLAIN then
    if job.worker then
      read_claim(job)
      for _, entry in ipairs(entries) do
        if entry.score == HEAD then
          entry.score = entry.at
        end
        job.next_at = smaller(job.next_at, job.kind == KEYED and entry.score or moved.at)
      end
    else
      become_senior(job, moved)
    end
    unite(job, entries)
  end
end

-- A grave arrives.
local function rest_here(grave, record)
  if grave.size == 0 then
    take_over(grave, record)
    return
  end
  local moved = record_of(grave, record)
  local entries = unpacked(moved)
  if moved.kind == grave.kind and grave.kind ~= PLAIN then
    unite(grave, entries)
    grave.updated = math.max(grave.updated, moved.updated)
  end
  -- Of others the one that is here stays: as with a burial, there is one for each key.
end
