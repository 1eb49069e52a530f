--@include arguments
-- Store new jobs: all of them, or none.
--
-- KEYS  the tags that they belong to, and may belong to
-- ARGV  then, of simple jobs, the records of each tag, as far as they follow the stamp, in one text
-- args  jobs    new jobs, see adding; or, if they are all simple (see there) and of one `kind`:
--       simple  for each tag, columns: keys, lengths of records, and numbers from 0 on, in the order in which they came;
--               first: arrival of number 0 (Cluster)
--       sender  whoever sends; seq: the number of this call among its calls. A repeated call does nothing.
--       parcel  instead of a sender: what the jobs are part of; numbers: which parts. Each is stored once, in whatever
--               calls it comes; -1 is a copy of an event, in whatever parcel (Cluster: what comes out of outboxes)
--       after   {tag, sender, seq} of the call that must have been made before, if any: nothing may overtake it
--       bells   for each tag, what to ring when something is queued; nil where the client rings
--       now     instead of the server's time
--       present only those whose key is here (Cluster, while the queue is being resharded)
--       check   store nothing, and say whether all could be stored: after these runs have ended, {key, token, …} of
--               args.worker in `ending`, which are plain jobs' and done or buried (Cluster)
-- Answers {'ok', woken, job that is not here, …} · {'stale', tag}, 0: the call before was not made ·
-- {'kind', job, kind}: the key of this job belongs to a job of that kind.
-- Changes the jobs, their indices and payloads.

-- First: if this is a repeat, the shard may be closed by now. What is remembered of a sender is the number of its last call,
-- the second of it, and then the jobs of it that were not here.
local sent = args.sender and 's:' .. args.sender
local first_meta = call('HMGET', KEYS[1] .. ':meta', 'open', 'seq', 'ready', 'moving', 'paused', 'keys', sent or '')
local last = first_meta[7]
if last and tonumber(last:match('^%d+')) >= args.seq then
  local said = {'ok', 0}
  for place in last:gsub('^%d+ %d+', ''):gmatch('%d+') do
    said[#said + 1] = tonumber(place)
  end
  return said
end
if args.after then
  local before = call('HGET', args.after[1] .. ':meta', 's:' .. args.after[2])
  if not before or tonumber(before:match('^%d+')) < args.after[3] then
    return {'stale', 0}
  end
end
--@include simple
--@include base
--@include payloads
--@include jobs
--@include adding

-- The jobs whose key will be free when the runs of `ending` have ended.
local function ending_jobs()
  local ending, told = {}, args.ending or {}
  for i = 1, #told, 2 do
    local job = tags[1].jobs[told[i]]
    if job and job.worker then
      read_claim(job)
      if job.kind == PLAIN and job.worker == args.worker and job.token == told[i + 1] then
        ending[job] = true
      end
    end
  end
  return ending
end

-- Those that were not delivered before.
local function undelivered(news)
  local marks, left = {}, {}
  for i, new in ipairs(news) do
    local number = args.numbers[i]
    marks[i] = (number < 0 and '' or args.parcel .. ':' .. number) .. '\0' .. new[4]
  end
  for i, known in ipairs(call('ZMSCORE', KEYS[1] .. ':delivered', unpack(marks))) do
    if not known then
      news[i].place, news[i].mark = i, marks[i]
      left[#left + 1] = news[i]
    end
  end
  return left
end

-- Those that are delivered now, with the time from which they may be forgotten: in a week, see delivered.
local function note_delivered(news)
  local name, marks = KEYS[1] .. ':delivered', {}
  for _, new in ipairs(news) do
    marks[#marks + 1] = micros + 6048e8
    marks[#marks + 1] = new.mark
  end
  each('ZADD', name, marks)
  call('ZREMRANGEBYSCORE', name, '-inf', string.format('%.17g', micros))
  call('EXPIRE', name, 604800)
end

local news = args.jobs
if args.parcel then
  news = undelivered(news)
  if #news == 0 then
    return {'ok', 0}
  end
end
local stale = stale_tag() or meet(news)
if stale then
  return {'stale', stale}
end
local said = {'ok', 0}
if args.present then
  local here = {}
  for i, new in ipairs(news) do
    new.place = new.place or i
    if new.stays then
      here[#here + 1] = new
    else
      said[#said + 1] = new.place
      if not args.check then
        uncancel(new)
      end
    end
  end
  news = here
end
local i, kind = conflict(news, ending_jobs())
if i then
  return {'kind', news[i].place or i, kind}
end
if args.check then
  return said
end
for _, new in ipairs(news) do
  add(new)
end
for _, tag in ipairs(tags) do
  flush(tag)
end
wake()
if sent and #news > 0 then
  call('HSET', KEYS[1] .. ':meta', sent, table.concat({args.seq, math.floor(micros / 1e6), unpack(said, 3)}, ' '))
elseif args.parcel and #news > 0 then
  note_delivered(news)
end
for _, tag in ipairs(tags) do
  if tag.woken then
    said[2] = 1
  end
end
return said
