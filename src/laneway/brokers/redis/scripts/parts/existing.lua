-- Ends the script if its queue does not exist: the server was emptied, and the client declares the queue again.
if not queues[1].is_there then
  return {'stale'}
end
