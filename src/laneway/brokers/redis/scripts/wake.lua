-- Have somebody look who waits for work on a queue.
--
-- KEYS  the queue's bell
-- Changes the bell: it never holds more than one element.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.pcall('LPUSH', KEYS[1], 1) -- on a server that is full they have to look by themselves
end
return 1
