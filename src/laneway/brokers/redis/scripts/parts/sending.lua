-- What runs send to other queues on a Cluster, where no script may touch another slot: it is put into the outbox of the
-- queue of the runs, in the step that settles them, and delivered afterwards. See outbox.py.

-- One entry for each queue that the settled runs send to. An entry is when it was sent, by which worker, and the jobs. Its
-- id is worker, queue and number of the turn, then how many jobs it has and the queue that they are for.
-- Answers {id, settlement, …}, …: the ids, and the settlements whose jobs are in the entries.
local function put_entries(queue, held)
  local entries, by_queue = {}, {}
  for _, settlement in ipairs(held) do
    local sent = settlement.elsewhere or {}
    for i = 1, #sent, 3 do
      local entry = by_queue[sent[i]]
      if not entry then
        entry = {queue = sent[i], count = 0, texts = {}, senders = {}}
        by_queue[sent[i]] = entry
        entries[#entries + 1] = entry
      end
      entry.count = entry.count + sent[i + 1]
      table.insert(entry.texts, sent[i + 2])
      table.insert(entry.senders, settlement.place)
    end
  end
  for n, entry in ipairs(entries) do
    local id = table.concat({args.worker, args.own, args.seq, entry.count, entry.queue}, ':')
    local text = string.format('%.17g\n', now) .. args.worker .. '\n[' .. table.concat(entry.texts, ',') .. ']'
    call('HSET', queue.name .. ':outbox', id, text)
    entries[n] = {id, unpack(entry.senders)}
  end
  return entries
end
