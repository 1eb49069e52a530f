-- Stores a list of simple jobs: due at once, nothing said but what every job has, keys free and different. They come in
-- columns, with their records packed. This part stands before the parts that define functions, because defining them takes
-- longer than this. If a job is not simple, nothing has been changed, and the rest of the script stores the jobs.
-- enqueue_one stores one simple job.
if args.simple then
  local kind, metas, is_simple = args.kind, {}, true
  for i, queue in ipairs(KEYS) do
    local keys = args.simple[i][1]
    local meta = i == 1 and first_meta
      or call('HMGET', queue .. ':meta', 'layout', 'next', 'seq', 'ready', 'paused', 'keys')
    metas[i] = meta
    is_simple = is_simple and meta[1] == args.layouts[i] and not meta[2] and now >= tonumber(meta[4] or 0)
      and (kind == PLAIN or call('EXISTS', queue .. ':cancelled') == 0)
    local queued, running = call('HMGET', queue .. ':jobs', unpack(keys)), call('HMGET', queue .. ':running', unpack(keys))
    for j = 1, #keys do
      is_simple = is_simple and not queued[j] and not running[j]
    end
  end

  if is_simple then
    local state = string.char(kind)
    for i, queue in ipairs(KEYS) do
      local keys, lengths, shards = args.simple[i][1], args.simple[i][2], args.simple[i][3]
      local meta, records, from, ready, jobs = metas[i], ARGV[i + 1], 1, {}, {}
      local seq = math.max(tonumber(meta[3] or 0), micros - 1)
      for j = 1, #keys do
        seq = seq + 1
        local stamp, list = struct.pack('>dI7', now, seq), ready[shards[j]]
        if not list then
          list = {}
          ready[shards[j]] = list
        end
        list[#list + 1] = stamp .. keys[j]
        jobs[2 * j - 1], jobs[2 * j] = keys[j], state .. stamp .. records:sub(from, from + lengths[j] - 1)
        from = from + lengths[j]
      end
      for shard, list in pairs(ready) do
        call('RPUSH', queue .. ':ready:' .. args.layouts[i] .. ':' .. shard, unpack(list))
      end
      call('HSET', queue .. ':jobs', unpack(jobs))
      if meta[6] then -- an operator lists by key
        for j = 1, #keys do
          call('ZADD', queue .. ':keys', 0, keys[j])
        end
      end
      if i == 1 and sent then
        call('HSET', queue .. ':meta', 'seq', seq, 'ready', now, sent, args.seq .. ' ' .. math.floor(micros / 1e6))
      else
        call('HSET', queue .. ':meta', 'seq', seq, 'ready', now)
      end
      ring(queue, not meta[5])
    end
    return {'ok'}
  end

  args.jobs = {}
  for i, columns in ipairs(args.simple) do
    local from = 1
    for j, number in ipairs(columns[4]) do
      local rest = unpack_blob(ARGV[i + 1]:sub(from, from + columns[2][j] - 1))
      local new = {i, columns[3][j], kind, columns[1][j], rest[1], rest[2] or '', nil, 0, false}
      new.number = number
      table.insert(args.jobs, new)
      from = from + columns[2][j]
    end
  end
  table.sort(args.jobs, function(one, other) return one.number < other.number end)
end
