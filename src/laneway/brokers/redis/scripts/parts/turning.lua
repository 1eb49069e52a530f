-- Checks worker and token of each settlement; the same for turns on one server and on a Cluster.

-- Which claims are still held? Those of others, and second words about the same one, are refused.
-- Returns the refused keys, what is told of those held, the plain jobs that will be gone, the jobs to be sent, and the
-- keys of which all was done, by tag.
local function sort_out(worker)
  local refused = args.gone or {}
  local held, seen, ending, news = {}, {}, {}, {}
  for i, told in ipairs(args.settlements) do
    local job = job_of(tags[told[1]], told[2])
    read_claim(job)
    if job.worker == worker and job.token == told[3] and not seen[job] then
      seen[job] = true
      held[#held + 1] = {job = job, verdict = told[4], delay = told[5], retry = told[6], error = told[7],
        done = told[8], buried = told[9], died = told[10], outbox = told[12],
        arrival = told[13], place = i}
      if job.kind == PLAIN and (told[4] == 'done' or told[4] == 'bury') then
        ending[job] = true
      end
      for j, new in ipairs(told[11] or {}) do
        new.told, new.place = i, j
        news[#news + 1] = new
      end
    else
      refused[#refused + 1] = told[2]
    end
  end

  -- Of what is finished, and was alone, there is nothing to be unpacked.
  local gone = {}
  for _, group in ipairs(args.finished) do
    local tag, keys = tags[group[1]], group[3]
    local held_by = claim_head(group[2], worker)
    local some_aside = call('EXISTS', tag.name .. ':aside') == 1
    local dropped = gone[tag] or {}
    gone[tag] = dropped
    for i, blob in ipairs(values_of(tag.name .. ':running', keys)) do
      local key = keys[i]
      if not blob or blob:sub(1, #held_by) ~= held_by or dropped[key] or (tag.jobs[key] and seen[tag.jobs[key]]) then
        refused[#refused + 1] = key
      else
        dropped[key] = true
        dropped[#dropped + 1] = key
        if some_aside or #news > 0 then
          local job = job_of(tag, key)
          read_claim(job)
          held[#held + 1] = {job = job, verdict = 'done', done = 0}
          ending[job] = job.kind == PLAIN or nil
        end
      end
    end
  end
  return refused, held, ending, news, gone
end

-- Running → whatever is told, and what the runs have sent is stored with it.
local function end_runs(worker, held, news, gone)
  -- They leave first: that makes room for all that follows.
  local processed, failed = {}, {}
  for tag, keys in pairs(gone) do
    if #keys > 0 then
      each('HDEL', tag.name .. ':running', keys)
      each('ZREM', tag.name .. ':w:' .. worker, keys)
      processed[tag] = #keys
    end
  end
  for _, told in ipairs(held) do
    local job = told.job
    if told.delay then
      drop_claim(job)
      if told.verdict == 'done' or told.done > 0 then
        processed[job.tag] = (processed[job.tag] or 0) + 1
      end
      if told.verdict == 'retry' or told.verdict == 'bury' then
        failed[job.tag] = (failed[job.tag] or 0) + 1
      end
    else
      job.claim_blob = nil
    end
  end
  for _, told in ipairs(held) do
    comes_at(told.arrival)
    settle(told.job, told)
  end
  for _, new in ipairs(news) do
    add(new)
  end
  if #held == 0 and #news == 0 and not next(processed) then
    return
  end
  for _, tag in ipairs(tags) do
    flush(tag)
    tag.jobs = {}
    if processed[tag] then
      call('HINCRBY', tag.name .. ':meta', 'processed', processed[tag])
    end
    if failed[tag] then
      call('HINCRBY', tag.name .. ':meta', 'failed', failed[tag])
    end
  end
end
