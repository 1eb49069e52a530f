-- The queues themselves.

-- name: epoch
SELECT epoch FROM meta WHERE id = 1;

-- name: queues
SELECT name, id, shards, priorities, epoch, target FROM queues ORDER BY name;

-- name: make_queue
INSERT INTO queues (name, shards) VALUES (:name, :shards) ON CONFLICT (name) DO NOTHING;

-- name: set_priorities
UPDATE queues SET priorities = :priorities WHERE id = :queue;
