--@include lanes
-- Claims due jobs: moves each key from `:jobs` to `:running`. A key in `:running` is never claimed again.

local LIMITS = {[PLAIN] = 1, [KEYED] = 100, [COLLECTING] = 1000}

-- Queued → running, with its first payloads: calls only if they are due.
local function start(job, worker, token, pos, max_payloads, most)
  local limit = LIMITS[job.kind]
  if max_payloads and job.kind ~= PLAIN then
    limit = math.max(max_payloads, 1)
  end
  job.since, job.next_at, job.floor = nil, nil, nil
  job.running = take_some(job, limit, job.kind == KEYED and now or nil, most)
  job.worker, job.token, job.pos = worker, token, pos
  job.claim_blob, job.claim_changed = pack_claim(job), true
  if job.size > 0 then
    job.next_at = job.kind == KEYED and smallest_score(job) or job.at
    job.floor = job.kind == COLLECTING and job.running[#job.running].score or nil
  end
  change(job)
end

-- Most jobs have one payload and have not failed: their record becomes their claim as it is. `started` are columns of what
-- is to be written; what is to be removed from the indices `trim` knows.
local function start_lone(queue, key, claim_blob, token)
  local started = queue.started
  if not started then
    started = {n = 0, keys = {}, claims = {}, held = {}}
    queue.started = started
  end
  local n = started.n + 1
  started.n, started.keys[n] = n, key
  started.claims[2 * n - 1], started.claims[2 * n] = key, claim_blob
  started.held[2 * n - 1], started.held[2 * n] = token, key
end

local function write_started(queue, worker)
  local started = queue.started
  if not started then
    return
  end
  queue.started = nil
  each('HDEL', queue.name .. ':jobs', started.keys)
  if queue.by_key then
    each('ZREM', queue.name .. ':keys', started.keys)
  end
  each('HSET', queue.name .. ':running', started.claims)
  each('ZADD', queue.name .. ':w:' .. worker, started.held)
end

-- The lanes that have something.
local function filled(lanes)
  local left = {}
  for i = 1, #lanes do
    if lanes[i].source then
      left[#left + 1] = lanes[i]
    end
  end
  return left
end

-- Have a lane go down a heap until none below it is more overdue.
local function sink(heap, place)
  local lane, count = heap[place], #heap
  local at, seq = lane.at, lane.seq
  while 2 * place <= count do
    local below = 2 * place
    local one, other = heap[below], heap[below + 1]
    if other and (other.at < one.at or (other.at == one.at and other.seq < one.seq)) then
      below, one = below + 1, other
    end
    if one.at > at or (one.at == at and one.seq >= seq) then
      break
    end
    heap[place], place = one, below
  end
  heap[place] = lane
end

-- The lanes that have something, as a heap: the most overdue first.
local function heap_of(lanes)
  local heap = filled(lanes)
  for place = math.floor(#heap / 2), 1, -1 do
    sink(heap, place)
  end
  return heap
end

-- The first lane has another job now, or none.
local function sink_first(heap)
  if not heap[1].source then
    heap[1] = heap[#heap]
    heap[#heap] = nil
  end
  if heap[1] then
    sink(heap, 1)
  end
end

-- A turn brings no more than this, whatever its limit: both sides must hold it in memory.
local CLAIM_CHARS = 16000000

-- Hand out what is due in some shards: `batch` jobs at a time from one shard, the most overdue first or, in order, round and
-- round. Returns key, claim, key, claim, … in the order in which they were taken, and how many jobs that are.
local function claim(queue, shards, worker, token, limit, batch, in_order, max_payloads)
  local taken, count, chars = {}, 0, 0
  batch = math.max(batch, 1)
  tidy_levels(queue)
  tidy_keys(queue)
  local head_of_claim, token_text = claim_head(token, worker), string.format('%.17g', token)
  local step = limit
  if #shards > 1 then
    -- Keys are spread at random; few shards need more than this.
    step = math.max(batch, math.ceil(limit / #shards + math.sqrt(limit / #shards)))
  end
  step = math.min(step, 1000)

  local function take_from(lane)
    for _ = 1, batch do
      if count >= limit or chars > CLAIM_CHARS or not find(lane) then
        return
      end
      local source = lane.source
      local n = source.next
      source.next = n + 1
      count = count + 1
      local key, blob = source.key[n], source.blob[n]
      if blob:byte(1) < FAILED then
        blob = head_of_claim .. struct.pack('>I4', count) .. blob
        start_lone(queue, key, blob, token_text)
      else
        local job = job_of(queue, key)
        start(job, worker, token, count, max_payloads, CLAIM_CHARS - chars)
        blob = job.claim_blob
      end
      chars = chars + #blob
      taken[2 * count - 1], taken[2 * count] = key, blob
      advance(lane)
    end
  end

  for _, level in ipairs(levels_of(queue)) do
    local lanes = {}
    for i, shard in ipairs(shards) do
      lanes[i] = new_lane(queue, queue.newest, shard, level, step)
    end
    local left = in_order and filled(lanes) or heap_of(lanes)
    while left[1] and count < limit and chars <= CLAIM_CHARS do
      if in_order then
        for _, lane in ipairs(left) do
          take_from(lane)
        end
        left = filled(left)
      else
        if is_there(left[1]) then -- else another lane may be before it
          take_from(left[1])
        end
        sink_first(left)
      end
    end
    for _, lane in ipairs(lanes) do
      trim(lane)
    end
    if count >= limit or chars > CLAIM_CHARS then
      break
    end
  end
  write_started(queue, worker)
  flush(queue)
  return taken, count
end

-- What a worker holds under a token, in the order in which it was handed out; as `claim` returns it.
local function claims_under(queue, worker, token)
  local claims = {}
  local keys = call('ZRANGEBYSCORE', queue.name .. ':w:' .. worker, token, token)
  for i, blob in ipairs(values_of(queue.name .. ':running', keys)) do
    local _, _, pos = claim_parts(blob)
    claims[i] = {keys[i], blob, pos}
  end
  table.sort(claims, function(one, other) return one[3] < other[3] end)
  local flat = {}
  for i, held in ipairs(claims) do
    flat[2 * i - 1], flat[2 * i] = held[1], held[2]
  end
  return flat
end
