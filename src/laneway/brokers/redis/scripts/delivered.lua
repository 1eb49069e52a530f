--@include arguments
-- Entries that were delivered here, and are in no outbox any more, are remembered for ten minutes from now on.
--
-- KEYS  the queue
-- args  entries  their ids
-- Changes :delivered.

for _, entry in ipairs(args.entries) do
  call('ZADD', KEYS[1] .. ':delivered', 'XX', 'LT', micros + 6e8, entry)
end
return 1
