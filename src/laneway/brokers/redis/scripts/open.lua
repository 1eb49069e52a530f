--@include base
-- Open shards of a queue: from now on jobs may be put into them. Those that were closed stay closed.
--
-- KEYS  the tags
-- args  paused  whether the queue is
--       tell    also those that were open before; else they know better
-- Changes :meta.

make_room()
for _, name in ipairs(KEYS) do
  if call('HEXISTS', name .. ':meta', 'closed') == 0 then
    local is_new = call('HSETNX', name .. ':meta', 'open', 1) == 1
    if (is_new or args.tell) and args.paused then
      call('HSET', name .. ':meta', 'paused', 1)
    elseif args.tell then
      call('HDEL', name .. ':meta', 'paused')
    end
  end
end
return 1
