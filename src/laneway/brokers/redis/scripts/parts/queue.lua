-- A queue's record, by position; the client's view of it is layout.QueueRecord.

local SHARDS, EPOCH, RESHARDING, TO_MOVE, MOVED, CLOSING, PROCESSED, FAILED = 1, 2, 3, 5, 6, 7, 8, 9
local DEFAULTS = {0, 1, 0, false, 0, 0, 0, 0, 0}

-- nil when there is no such queue.
local function read_queue()
  local stored = call('HGET', KEYS[1], args.queue)
  if not stored then
    return nil
  end
  local queue = unpack_blob(stored)
  for i, usual in ipairs(DEFAULTS) do
    if queue[i] == nil then
      queue[i] = usual
    end
  end
  return queue
end

local function write_queue(queue)
  local stored = pack(queue)
  make_room() -- what has begun must come to its end
  call('HSET', KEYS[1], args.queue, stored)
  return stored
end
