--@include base
-- Take over what is remembered of jobs that were cancelled, or of parcels that were delivered.
--
-- KEYS  the tag
-- ARGV  then time, mark, …
-- args  index  where that is remembered; ttl: for how many seconds, if not for ever
-- Changes :cancelled or :delivered.

make_room() -- the same will soon be dropped where it comes from
local marks = {}
for i = 2, #ARGV do
  marks[i - 1] = ARGV[i]
end
each('ZADD', KEYS[1] .. args.index, marks)
if args.ttl then
  call('EXPIRE', KEYS[1] .. args.index, args.ttl)
end
return 1
