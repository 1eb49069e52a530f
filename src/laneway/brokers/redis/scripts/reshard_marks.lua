--@include base
-- Take over what is remembered of cancelled jobs.
--
-- KEYS  the tag
-- ARGV  then time, mark, …
-- Changes :cancelled.

make_room() -- the same will soon be dropped where it comes from
local marks = {}
for i = 2, #ARGV do
  marks[i - 1] = ARGV[i]
end
each('ZADD', KEYS[1] .. ':cancelled', marks)
return 1
