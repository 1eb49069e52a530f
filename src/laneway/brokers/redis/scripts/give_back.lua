--@include base
--@include payloads
--@include jobs
--@include settling
-- Give back what a worker holds, as it was before.
--
-- KEYS  the queues
-- args  workers          whose claims
--       leaves           they are gone, or dead: forget them here
--       before, held     only claims older than this token, and of none of these; they were never started
--       tidy             forget what was cancelled a day ago, and senders that have been silent for ten minutes
--       died             {queue (its place), key, token, identity}: runs that died with the worker, counted
--       now              see enqueue
-- Answers how many claims that were.

local is_held = {}
for _, token in ipairs(args.held or {}) do
  is_held[token] = true
end
local count = 0
for _, worker in ipairs(args.workers) do
  for i, queue in ipairs(queues) do
    local set = queue.name .. ':w:' .. worker
    local found = call('ZRANGEBYSCORE', set, '-inf', args.before and '(' .. string.format('%.17g', args.before) or '+inf', 'WITHSCORES')
    local keys = {}
    for j = 1, #found, 2 do
      if not is_held[tonumber(found[j + 1])] then
        keys[#keys + 1] = found[j]
      end
    end
    load(queue, keys)
    for _, key in ipairs(keys) do
      read_claim(queue.jobs[key])
    end
    for _, died in ipairs(args.died or {}) do
      local job = died[1] == i and queue.jobs[died[2]]
      if job and job.running and job.worker == worker and job.token == died[3] then
        count_death(job, died[4])
      end
    end
    for _, key in ipairs(keys) do
      local job = queue.jobs[key]
      if job.worker == worker then
        drop_claim(job)
        give_back(job, not args.before)
        count = count + 1
      else
        call('ZREM', set, key)
      end
    end
    flush(queue)
    if args.leaves then
      call('HDEL', queue.name .. ':meta', 'w:' .. worker, 't:' .. worker)
    end
  end
end
if args.tidy then
  for _, queue in ipairs(queues) do
    local fields, silent = call('HGETALL', queue.name .. ':meta'), {}
    for i = 1, #fields, 2 do
      if fields[i]:sub(1, 2) == 's:' and tonumber(fields[i + 1]:match('^%d+ (%d+)')) < micros / 1e6 - 600 then
        silent[#silent + 1] = fields[i]
      end
    end
    each('HDEL', queue.name .. ':meta', silent)
    call('ZREMRANGEBYSCORE', queue.name .. ':cancelled', '-inf', '(' .. string.format('%.17g', now - 86400))
  end
end
wake()
return count
