-- Applies a settlement to its job, and gives back the claims of dead workers.

-- A hundred years: the longest delay after a run.
local LONGEST = 100 * 365.25 * 86400

local function again_at(delay)
  if delay ~= delay then return now end
  return now + math.max(-LONGEST, math.min(delay, LONGEST))
end

local function become_fresh(job)
  job.retry, job.error, job.rest, job.attempt, job.deaths = -1, nil, nil, 0, 0
end

-- Others than calls are not counted one by one.
local function not_started(job, entries, from)
  if job.kind == KEYED then
    for i = from or 1, #entries do
      entries[i].attempt = entries[i].attempt - 1
    end
  end
end

-- Running → queued; or gone, if nothing is left of it.
local function put_back(job)
  job.worker, job.running, job.next_at, job.floor, job.claim_changed = nil, nil, nil, nil, nil
  if job.was or job.size > 0 then
    change(job)
  end
end

local function count_death(job, id)
  if job.kind ~= KEYED then
    job.deaths = job.deaths + 1
    return
  end
  for _, entry in ipairs(job.running) do
    if entry.id == id then
      entry.deaths = (entry.deaths or 0) + 1
    end
  end
end

-- Put payloads of a job into the morgue, to those of its key that are there; a plain job replaces itself.
local function bury(job, entries, retry, error)
  local grave = grave_of(job.queue, job.key)
  if grave.size > 0 and (job.kind == PLAIN or grave.kind ~= job.kind) then
    remove_all_payloads(grave)
    grave.deaths = 0
  end
  if #entries == 0 and grave.size == 0 then
    return
  end
  local deaths = job.deaths
  if job.kind == COLLECTING and grave.size > 0 then
    deaths = math.max(deaths, grave.deaths)
  end
  grave.kind, grave.at, grave.priority = job.kind, job.at, job.priority
  grave.expires, grave.headers = job.expires, job.headers
  grave.retry, grave.attempt, grave.deaths, grave.error, grave.updated = retry, job.attempt, deaths, error, now
  grave.seq = next_seq(job.queue)
  for _, entry in ipairs(entries) do
    if job.kind == KEYED then
      entry.score, grave.attempt = entry.at, entry.attempt or 0
    end
    unite_one(grave, entry)
  end
  change(grave)
end

-- The first payloads were buried or deleted: what is left starts anew, and has not failed.
local function leave_behind(job, left)
  not_started(job, left)
  unite(job, left)
  become_fresh(job)
  job.since = nil
  if job.kind == COLLECTING then
    job.at = now
  elseif job.size > 0 then
    job.at = smallest_score(job)
  end
end

-- Running → queued, as it was before; with what has come meanwhile.
local function give_back(job, started)
  if not started then
    job.attempt = job.attempt - 1
    not_started(job, job.running)
  end
  unite(job, job.running)
  if job.kind == KEYED and not job.rest and job.next_at then
    job.at = math.min(job.at, job.next_at)
  end
  job.since = nil
  put_back(job)
end

local function run_again(job, rest, told)
  job.at, job.retry = again_at(told.delay), told.retry
  if told.verdict == 'retry' then
    job.error = told.error
  elseif told.done > 0 then
    job.error = nil
  end
  if job.kind == KEYED then
    job.rest, job.attempt = job.at, rest[1].attempt
    rest[1].score = HEAD
    not_started(job, rest, 2)
  end
  unite(job, rest)
end

-- Some are finished, and the rest was never started.
local function release_the_rest(job, rest)
  not_started(job, rest)
  unite(job, rest)
  become_fresh(job)
  if job.kind == KEYED and job.size > 0 then
    job.at = smallest_score(job)
  end
end

-- Running → whatever is told. The first payloads are finished; it is told what becomes of the rest.
local function settle(job, told)
  local verdict = told.verdict
  local done = math.min(math.max(told.done, 0), #job.running)
  local rest = {}
  if verdict ~= 'done' then
    for i = done + 1, #job.running do
      rest[#rest + 1] = job.running[i]
    end
  end
  if verdict == 'done' or (#rest == 0 and (verdict == 'retry' or verdict == 'postpone')) then
    -- What was set aside meanwhile is next, as if it had just come.
    if job.next_at then
      become_fresh(job)
      job.at = job.next_at
    end
    put_back(job)
    return
  end
  if verdict == 'release' and done == 0 then
    give_back(job, false)
    return
  end
  if told.died and #rest > 0 and verdict ~= 'release' then
    count_death(job, rest[1].id)
  end
  if verdict == 'bury' then
    -- A plain job is one payload, whatever is said of it.
    local count = job.kind == PLAIN and 1 or math.max(told.buried, 0)
    local dead, left = {}, {}
    for i, entry in ipairs(rest) do
      table.insert(i <= count and dead or left, entry)
    end
    bury(job, dead, told.retry, told.error)
    leave_behind(job, left)
  elseif verdict == 'release' then
    release_the_rest(job, rest)
  else
    run_again(job, rest, told)
  end
  job.since = nil
  put_back(job)
end
