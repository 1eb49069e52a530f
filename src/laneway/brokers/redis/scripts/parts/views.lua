-- What others get to see of a job. A view, by position:
--   key, status, kind, perform_at, seq, retry_count, attempt, deaths, priority, error, updated_at, worker, size,
--   payloads as in a claim, see pack_entry
-- What is not there is false.

-- The first payloads of a job, in order; no more of them once they are this many bytes.
local function shown_payloads(job, count, most)
  if job.lone then
    return {job.lone}
  end
  local entries, bytes = {}, 0
  while #entries < math.min(count, job.size) and bytes < most do
    local last = math.min(#entries + 50, count) - 1
    local found = entries_of(job, call('ZRANGE', order_key(job), #entries, last, 'WITHSCORES'))
    if #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      entries[#entries + 1] = entry
      bytes = bytes + #entry.body
    end
  end
  return entries
end

-- Packs a view; the second value is how many bytes its payloads are.
local function view_of(job, status, entries, size)
  local shown, bytes, deaths = {}, 0, job.deaths
  for i, entry in ipairs(entries) do
    shown[i] = pack_entry(entry)
    bytes = bytes + #entry.body
  end
  if job.kind == KEYED then
    deaths = entries[1] and entries[1].deaths or 0 -- each call has its own
  end
  return {job.key, status, job.kind, job.at, job.seq, job.retry, job.attempt, deaths, job.priority, job.error or false,
    job.updated or false, status == 'running' and job.worker, size, shown}, bytes
end

local function due_status(at)
  return at > now and 'delayed' or 'queued'
end

local function queued_view(job, count, most)
  return view_of(job, due_status(job.at), shown_payloads(job, count, most), job.size)
end

local function running_view(job, count, most)
  read_claim(job)
  local entries, bytes = {}, 0
  for i = 1, math.min(count, #job.running) do
    if bytes < most then
      entries[i] = job.running[i]
      bytes = bytes + #entries[i].body
    end
  end
  return view_of(job, 'running', entries, #job.running)
end

-- What is set aside while its key is being run, as the job that it will be: nothing has happened to it yet.
local function aside_view(job, count, most)
  local aside = {key = job.key, kind = job.kind, at = job.next_at, seq = job.seq, retry = -1, attempt = 0, deaths = 0,
    priority = job.priority}
  return view_of(aside, due_status(job.next_at), shown_payloads(job, count, most), job.size)
end

local function dead_view(grave, count, most)
  return view_of(grave, 'dead', shown_payloads(grave, count, most), grave.size)
end
