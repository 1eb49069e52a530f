--@include base
--@include queue
-- Note how far the resharding of a queue has come. It never goes back.
--
-- KEYS  queues
-- args  queue, epoch: the one that is being left
--       to_move  how many jobs there were to be moved; only the first word counts
--       left     how many there still are
-- Answers {to move, moved}; nil when that resharding is over.
-- Changes the queue's record.

local queue = read_queue()
if not queue or queue[EPOCH] ~= args.epoch or queue[RESHARDING] == 0 then
  return false
end
if queue[TO_MOVE] < 0 and args.to_move then
  queue[TO_MOVE] = args.to_move
end
if args.left then
  queue[MOVED] = math.max(queue[MOVED], math.min(queue[TO_MOVE] - args.left, queue[TO_MOVE]))
end
write_queue(queue)
return {queue[TO_MOVE], queue[MOVED]}
