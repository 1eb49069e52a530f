-- What most calls of `enqueue` bring: one job that is due at once, of which nothing was said but what every job has, and
-- whose key is free. It is stored here, as `add_simple` does it, before the functions are made that all others need:
-- making those takes longer than this. Whatever is not so is left to them, and nothing has been touched.
do
  local new, tag = args.jobs[1], KEYS[1]
  local is_unusual = args.jobs[2] or args.parcel or args.present or args.check or new[2] or new[8] ~= 0 or new[9]
  for i = 10, 15 do
    is_unusual = is_unusual or new[i]
  end
  local kind, key = new[3], new[4]
  local meta = not is_unusual and call('HMGET', tag .. ':meta', 'open', 'moving', 'seq', 'ready', 'paused')
  if meta and meta[1] and tonumber(meta[2] or 0) == 0 and now >= tonumber(meta[4] or 0)
    and call('HEXISTS', tag .. ':jobs', key) == 0 and call('HEXISTS', tag .. ':running', key) == 0
    and (kind == PLAIN or call('EXISTS', tag .. ':cancelled') == 0) then
    local seq = math.max(tonumber(meta[3] or 0) + 1, micros)
    local stamp, rest = struct.pack('>dI7', now, seq), {new[5]}
    if kind ~= PLAIN then
      rest[2] = new[6]
    end
    if kind == KEYED then
      rest[3], rest[4] = false, true
    end
    call('RPUSH', tag .. ':ready', stamp .. key)
    call('ZADD', tag .. ':keys', 0, key)
    call('HSET', tag .. ':jobs', key, string.char(kind) .. stamp .. pack(rest))
    call('HSET', tag .. ':meta', 'seq', seq, 'ready', now)
    local bell = args.bells and args.bells[1]
    if bell then
      bell = meta[5] and bell or bell .. ':due'
      if call('EXISTS', bell) == 0 then
        call('LPUSH', bell, 1)
      end
    end
    if sent then
      call('SET', sent, args.seq, 'EX', 600)
    end
    return {'ok', 1}
  end
end
