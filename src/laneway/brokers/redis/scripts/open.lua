--@include base
-- Open shards of a queue: from now on jobs may be put into them.
--
-- KEYS  the tags
-- args  paused

for _, name in ipairs(KEYS) do
  call('HSETNX', name .. ':meta', 'open', 1)
  if args.paused then
    call('HSET', name .. ':meta', 'paused', 1)
  end
end
return 1
