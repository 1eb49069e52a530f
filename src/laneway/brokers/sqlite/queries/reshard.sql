-- Changing a queue's shard count, a step at a time.

-- name: reshard_begin
UPDATE queues SET target = :shards, phase = 0, place = '', moved = 0,
       total = (SELECT count(*) FROM jobs WHERE queue = :queue) + (SELECT count(*) FROM morgue WHERE queue = :queue)
 WHERE id = :queue;

-- name: reshard_state
SELECT phase, place, total, moved FROM queues WHERE id = :queue;

-- name: count_running
SELECT count(*) FROM jobs INDEXED BY jobs_claimed WHERE worker IS NOT NULL AND queue = :queue;

-- name: reshard_jobs
-- The next keys of a queue after :place.
SELECT id, key, shard FROM jobs WHERE queue = :queue AND key > :place ORDER BY key LIMIT :limit;

-- name: reshard_dead
SELECT id, key, shard FROM morgue WHERE queue = :queue AND key > :place ORDER BY key LIMIT :limit;

-- name: reshard_move_jobs
-- :rows is [[id, shard], …]
UPDATE jobs SET shard = json_extract(n.value, '$[1]')
  FROM json_each(:rows) n WHERE jobs.id = json_extract(n.value, '$[0]');

-- name: reshard_move_dead
UPDATE morgue SET shard = json_extract(n.value, '$[1]')
  FROM json_each(:rows) n WHERE morgue.id = json_extract(n.value, '$[0]');

-- name: reshard_place
UPDATE queues SET phase = :phase, place = :place, moved = moved + :moved WHERE id = :queue;

-- name: reshard_end
UPDATE queues SET shards = target, target = 0, phase = 0, place = '', epoch = epoch + 1 WHERE id = :queue;

-- name: next_epoch
UPDATE meta SET epoch = epoch + 1 WHERE id = 1;
