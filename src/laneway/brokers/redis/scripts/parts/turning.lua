-- Settles the claims of a turn: checks worker and token of each, ends the runs, and stores what they have sent.

-- Which claims are still held? Those of other workers, and a second settlement of the same one, are refused.
-- Returns the refused keys, the settlements of claims that are held, the plain jobs that will be gone, the jobs to be sent,
-- and the keys of which all was done.
local function sort_out(queue, worker)
  local refused, held, seen, ending, news = {}, {}, {}, {}, {}
  for i, settlement in ipairs(args.settlements) do
    local job = job_of(queue, settlement[1])
    read_claim(job)
    local verdict = settlement[3]
    if job.worker == worker and job.token == settlement[2] and not seen[job] then
      seen[job] = true
      held[#held + 1] = {job = job, verdict = verdict, delay = settlement[4], retry = settlement[5], error = settlement[6],
        done = settlement[7], buried = settlement[8], died = settlement[9], elsewhere = settlement[11], place = i}
      if job.kind == PLAIN and (verdict == 'done' or verdict == 'bury') then
        ending[job] = true
      end
      for j, new in ipairs(settlement[10] or {}) do
        new.sender, new.place = i, j
        news[#news + 1] = new
      end
    else
      refused[#refused + 1] = job.key
    end
  end

  -- Of what is finished, and was alone, there is nothing to be unpacked.
  local gone, is_gone = {}, {}
  local some_aside = call('EXISTS', queue.name .. ':aside') == 1
  for _, group in ipairs(args.finished) do
    local held_by, keys = claim_head(group[1], worker), group[2]
    for i, blob in ipairs(values_of(queue.name .. ':running', keys)) do
      local key = keys[i]
      if not blob or blob:sub(1, #held_by) ~= held_by or is_gone[key] or (queue.jobs[key] and seen[queue.jobs[key]]) then
        refused[#refused + 1] = key
      else
        is_gone[key] = true
        gone[#gone + 1] = key
        if some_aside or #news > 0 then
          local job = job_of(queue, key)
          read_claim(job)
          held[#held + 1] = {job = job, verdict = 'done', done = 0}
          ending[job] = job.kind == PLAIN or nil
        end
      end
    end
  end
  return refused, held, ending, news, gone
end

-- Running → whatever the settlements say. What the runs have sent is stored with it.
local function end_runs(queue, worker, held, news, gone)
  -- The claims end first: that makes room for all that follows.
  local processed, failed = #gone, 0
  if #gone > 0 then
    each('HDEL', queue.name .. ':running', gone)
    each('ZREM', queue.name .. ':w:' .. worker, gone)
  end
  for _, settlement in ipairs(held) do
    local job, verdict = settlement.job, settlement.verdict
    if settlement.delay then
      drop_claim(job)
      if verdict == 'done' or settlement.done > 0 then
        processed = processed + 1
      end
      if verdict == 'retry' or verdict == 'bury' then
        failed = failed + 1
      end
    else
      job.claim_blob = nil
    end
  end
  for _, settlement in ipairs(held) do
    settle(settlement.job, settlement)
  end
  for _, new in ipairs(news) do
    add(new)
  end
  for _, other in ipairs(queues) do
    flush(other)
    other.jobs = {}
  end
  if processed > 0 then
    call('HINCRBY', queue.name .. ':meta', 'processed', processed)
  end
  if failed > 0 then
    call('HINCRBY', queue.name .. ':meta', 'failed', failed)
  end
end
