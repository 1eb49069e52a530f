--@include base
--@include payloads
--@include jobs
--@include moving
-- Forget keys that have arrived where they belong.
--
-- KEYS  the tag
-- args  batch, keys_gone
-- Answers {'ok'}.
-- Changes :leaving, and removes the payloads that had stayed.

local leaving = KEYS[1] .. ':leaving'
local gone = {}
for i, blob in ipairs(values_of(leaving, args.keys_gone)) do
  local moved = blob and unpack_blob(blob) or {}
  if moved[1] == args.batch then
    local key = args.keys_gone[i]
    gone[#gone + 1] = key
    for place, hash in pairs({[2] = ':jobs', [3] = ':morgue'}) do
      -- Unless it belonged here, and has come back.
      if is_spilled(moved[place]) and not is_spilled(call('HGET', KEYS[1] .. hash, key)) then
        local job = {tag = tags[1], key = key, dead = place == 3}
        call('UNLINK', order_key(job), calls_key(job))
      end
    end
  end
end
each('HDEL', leaving, gone)
return {'ok'}
