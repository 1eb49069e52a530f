--@include base
--@include payloads
--@include jobs
--@include surveying
-- Mend what survey found: indices are made to say what the jobs say, and jobs to have the payloads that there are.
--
-- KEYS  the queue
-- ARGV  then index, member, …: entries that say what is not so
-- args  jobs, graves  keys; unlisted: keys of claims that their worker's list does not have
--       now           see enqueue
-- Answers {'ok'} · {'stale'}.
-- Changes the indices, records that are wrong, and :w:; removes jobs and graves without payloads.

local queue = queues[1]
if not queue.is_there or (queue.is_moving and #args.jobs + #args.graves > 0) then
  return {'stale'}
end
for i = 2, #ARGV, 2 do
  each('ZREM', queue.name .. ARGV[i], strays_of(queue, ARGV[i], {ARGV[i + 1]}))
end
for i, blob in ipairs(values_of(queue.name .. ':running', args.unlisted)) do
  if blob then
    local token, worker = claim_parts(blob)
    call('ZADD', queue.name .. ':w:' .. worker, token, args.unlisted[i])
  end
end

load(queue, args.jobs)
for i, blob in ipairs(values_of(queue.name .. ':running', args.jobs)) do
  local job = queue.jobs[args.jobs[i]]
  if job.was then
    job.size = true_size(job)
    if blob and job.was.where ~= ASIDE then
      -- It runs: what is queued beside that is set aside.
      job.claim_blob, job.worker, job.next_at = blob, '', job.at
    elseif not blob and job.was.where == ASIDE then
      job.next_at = nil
      call('ZREM', queue.name .. ':aside', job.key)
    end
    if job.size == 0 then
      job.next_at = nil
    elseif not (blob and job.was.where ~= ASIDE) then
      job.was = nil -- so that it is written into all its indices
    end
    change(job)
  end
end
for _, key in ipairs(args.graves) do
  local grave = grave_of(queue, key)
  if grave.was then
    grave.size = true_size(grave)
    grave.updated = grave.updated or now
    change(grave)
  end
end
flush(queue)
wake()
return {'ok'}
