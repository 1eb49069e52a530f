-- What is wrong with a job, a grave, or an entry of an index.

-- Whether the index of keys is there, and whole.
local function has_keys(queue)
  if queue.has_keys == nil then
    queue.has_keys = queue.by_key ~= nil and call('HEXISTS', queue.name .. ':meta', 'keys_from') == 0
  end
  return queue.has_keys
end

-- What the indices should say of a queued job, or a grave: index -> {member, score}. (The list is looked at elsewhere.)
local function entries_for(job, where)
  local key = job.key
  if job.dead then
    return {[':dead'] = {ordered(job.seq) .. key, job.updated}, [':dkeys'] = {key, 0}}
  elseif where == ASIDE then
    return {[':aside'] = {key, job.at}}
  end
  local entries = {[':keys'] = has_keys(job.queue) and {key, 0} or nil}
  if where == DUE then
    entries[due_index(job.queue.newest, shard_of(job), job.priority)] = {ordered(job.seq) .. key, job.at}
  end
  if job.retry >= 0 then
    entries[':failed'] = {ordered(job.seq) .. key, job.at}
    entries[':failures'] = {by_time(job.at, job.seq) .. key, job.retry}
    entries[':fkeys'] = {key, 0}
  end
  return entries
end

local function is_level(queue, level)
  for _, known in ipairs(queue.levels) do
    if known == level then return true end
  end
  return level == 0
end

local function is_indexed(job, where)
  if where == DUE and not job.dead and not is_level(job.queue, job.priority) then
    return false -- no worker would look there
  end
  for index, entry in pairs(entries_for(job, where)) do
    if tonumber(call('ZSCORE', job.queue.name .. index, entry[1]) or nil) ~= entry[2] then
      return false
    end
  end
  return true
end

-- A job, or a grave, as it is stored; and where.
local function stored_job(queue, key, blob, dead)
  local job = new_job(queue, key)
  job.dead = dead
  return job, (read_job(job, blob))
end

-- How many payloads there really are.
local function true_size(job)
  return job.lone and 1 or call('ZCARD', order_key(job))
end

local function is_due_index(index) return index:sub(1, 5) == ':due:' end

local function key_in(index, member)
  if index == ':failures' then
    return member:sub(16)
  elseif is_due_index(index) or index == ':failed' or index == ':dead' then
    return member:sub(8)
  end
  return member
end

-- The members of an index that say what is not so.
local function strays_of(queue, index, members)
  local keys, strays = {}, {}
  for i, member in ipairs(members) do
    keys[i] = key_in(index, member)
  end
  local dead = index == ':dead' or index == ':dkeys'
  for i, blob in ipairs(values_of(queue.name .. (dead and ':morgue' or ':jobs'), keys)) do
    local is_so
    if blob and (index == ':keys' or index == ':dkeys') then
      is_so = dead or where_of(blob) ~= ASIDE
    elseif blob then
      local entry = entries_for(stored_job(queue, keys[i], blob, dead))[index]
      is_so = entry and entry[1] == members[i]
    end
    if not is_so then
      strays[#strays + 1] = members[i]
    end
  end
  return strays
end
