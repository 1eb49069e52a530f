-- What runs send to other queues on a Cluster, where no script may touch another slot: it is put into the outbox of the
-- queue of the runs, in the step that settles them, and delivered afterwards. See outbox.py.

-- The queues that entries of an outbox are for whose order matters. Of many entries that is not found out.
local MANY = 100

local function awaited_queues(name, count)
  local awaited = {}
  for _, id in ipairs(count <= MANY and call('HKEYS', name) or {}) do
    if id:sub(1, 2) ~= '0:' then
      awaited[id:match('[^:]*$')] = true
    end
  end
  return awaited
end

-- Write one entry for each queue that the settled runs send to: when it was sent, and the jobs. Its id is its number, then
-- worker, queue and number of the turn, then how many jobs it has and the queue that they are for. Numbers grow. The number
-- is 0 if the order of the jobs does not matter, because all of them are plain.
-- Answers {id, {settlement, …}}, …: the ids, and the settlements whose jobs are in the entries · 0: there may be older entries
-- that are to be delivered before, so that the client must read what the outbox has for these queues.
local function put_entries(queue, held)
  local entries, by_queue, is_ordered = {}, {}, false
  for _, settlement in ipairs(held) do
    local sent = settlement.elsewhere or {}
    for i = 1, #sent, 4 do
      local entry = by_queue[sent[i]]
      if not entry then
        entry = {queue = sent[i], count = 0, texts = {}, senders = {}}
        by_queue[sent[i]] = entry
        entries[#entries + 1] = entry
      end
      entry.count = entry.count + sent[i + 1]
      entry.is_ordered = entry.is_ordered or sent[i + 2]
      is_ordered = is_ordered or sent[i + 2]
      table.insert(entry.texts, sent[i + 3])
      table.insert(entry.senders, settlement.place)
    end
  end
  local name = queue.name .. ':outbox'
  local count = is_ordered and call('HLEN', name) or 0
  local awaited, is_behind = count > 0 and awaited_queues(name, count) or {}, count > MANY
  for n, entry in ipairs(entries) do
    local number = entry.is_ordered and call('HINCRBY', queue.name .. ':meta', 'sent', 1) or 0
    local id = table.concat({number, args.worker, args.own, args.seq, entry.count, entry.queue}, ':')
    call('HSET', name, id, string.format('%.17g\n[', now) .. table.concat(entry.texts, ',') .. ']')
    is_behind = is_behind or (entry.is_ordered and awaited[entry.queue])
    entries[n] = {id, entry.senders}
  end
  return is_behind and 0 or entries
end
