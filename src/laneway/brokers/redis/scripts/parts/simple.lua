-- What most calls of `enqueue` bring: jobs that are due at once, of which nothing was said but what every job has, and whose
-- keys are free and differ. They come in columns, with their records packed, and are stored here, as `add_simple` does
-- it, before the functions are made that all others need: making those takes longer than this, and so there are none
-- here. If anything is not so, nothing has been touched, and they are left to the others.
if args.simple then
  local kind, metas, is_simple = args.kind, {}, true
  for i, tag in ipairs(KEYS) do
    local keys = args.simple[i][1]
    local meta = i == 1 and first_meta
      or call('HMGET', tag .. ':meta', 'open', 'seq', 'ready', 'moving', 'paused', 'keys')
    metas[i] = meta
    is_simple = is_simple and meta[1] and not (meta[4] and tonumber(meta[4]) > 0) and now >= tonumber(meta[3] or 0)
      and (kind == PLAIN or call('EXISTS', tag .. ':cancelled') == 0)
    if #keys == 1 then
      is_simple = is_simple and call('HEXISTS', tag .. ':jobs', keys[1]) == 0
        and call('HEXISTS', tag .. ':running', keys[1]) == 0
    else
      local queued, running = call('HMGET', tag .. ':jobs', unpack(keys)), call('HMGET', tag .. ':running', unpack(keys))
      for j = 1, #keys do
        is_simple = is_simple and not queued[j] and not running[j]
      end
    end
  end

  if is_simple then
    local first = args.first and math.abs(args.first - micros) < 6e7 and args.first or micros
    local state, rung = string.char(kind), {}
    for i, tag in ipairs(KEYS) do
      local keys, lengths, places = args.simple[i][1], args.simple[i][2], args.simple[i][3]
      local meta, records, from, ready, jobs = metas[i], ARGV[i + 1], 1, {}, {}
      local seq = tonumber(meta[2] or 0)
      for j = 1, #keys do
        seq = math.max(seq + 1, first + places[j])
        local stamp = struct.pack('>dI7', now, seq)
        ready[j] = stamp .. keys[j]
        jobs[2 * j - 1], jobs[2 * j] = keys[j], state .. stamp .. records:sub(from, from + lengths[j] - 1)
        from = from + lengths[j]
      end
      call('RPUSH', tag .. ':ready', unpack(ready))
      call('HSET', tag .. ':jobs', unpack(jobs))
      if meta[6] then -- somebody lists by key
        for j = 1, #keys do
          call('ZADD', tag .. ':keys', 0, keys[j])
        end
      end
      if i == 1 and sent then
        call('HSET', tag .. ':meta', 'seq', seq, 'ready', now, sent, args.seq .. ' ' .. math.floor(micros / 1e6))
      else
        call('HSET', tag .. ':meta', 'seq', seq, 'ready', now)
      end
      local bell = args.bells and args.bells[i]
      if bell and not rung[bell] then
        rung[bell] = true
        bell = meta[5] and bell or bell .. ':due'
        if call('EXISTS', bell) == 0 then
          call('LPUSH', bell, 1)
        end
      end
    end
    return {'ok', 1}
  end

  args.jobs = {}
  for i, columns in ipairs(args.simple) do
    local from = 1
    for j, place in ipairs(columns[3]) do
      local rest = unpack_blob(ARGV[i + 1]:sub(from, from + columns[2][j] - 1))
      local new = {i, nil, kind, columns[1][j], rest[1], rest[2] or '', nil, 0, false}
      new[15], new.number = args.first and args.first + place, place
      table.insert(args.jobs, new)
      from = from + columns[2][j]
    end
  end
  table.sort(args.jobs, function(one, other) return one.number < other.number end)
end
