-- The tag that must not be gone by: it is no shard (any more), or its keys are being moved and whoever asks does not
-- know that, and so would take one that has been moved for gone.
local function outdated_tag()
  local stale = stale_tag()
  if stale or args.moving then
    return stale
  end
  for i, tag in ipairs(tags) do
    if tag.moving > 0 then return i end
  end
end
