-- The queues themselves.

-- name: epoch
SELECT epoch FROM meta WHERE id = 1;

-- name: queues
SELECT name, id, shards, priorities, epoch, target FROM queues ORDER BY name;

-- name: make_queue
INSERT INTO queues (name, shards) VALUES (:name, :shards) ON CONFLICT (name) DO NOTHING;

-- name: set_paused
-- No row is changed when the queue does not exist, or is so already.
UPDATE queues SET paused = :paused WHERE name = :name AND paused <> :paused;

-- name: set_priorities
UPDATE queues SET priorities = :priorities WHERE id = :queue;
