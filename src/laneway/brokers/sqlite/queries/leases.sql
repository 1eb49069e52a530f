-- Workers, their leases, and the claims of dead workers.

-- name: join
INSERT INTO workers (name, host, pid, queues, concurrency, lease_s, started_at, seen_at, shards)
VALUES (:name, :host, :pid, :queues, :concurrency, :lease_s, :now, :now, :shards)
    ON CONFLICT (name) DO UPDATE SET shards = excluded.shards;

-- name: worker_id
SELECT id FROM workers WHERE name = :name AND dead = 0;

-- name: renew
UPDATE workers SET counter = counter + 1, seen_at = :now WHERE id = :worker;

-- name: claims_unknown
-- What a worker holds under tokens that it does not know of: their answer never arrived, so nothing was started.
SELECT json_group_array(id) FROM jobs
 WHERE worker = :worker AND token < :before AND token NOT IN (SELECT value FROM json_each(:held));

-- name: claims_of
-- Whatever a worker holds; it may have been started, so the attempt stays counted.
SELECT json_group_array(id) FROM jobs WHERE worker = :worker;

-- name: held_by
-- The job that :worker holds under :token, if it does.
SELECT j.id, j.kind FROM queues q CROSS JOIN jobs j ON j.queue = q.id AND j.key = :key
 WHERE q.name = :queue AND j.worker = :worker AND j.token = :token;

-- name: count_death
-- The process that ran a plain or collecting job has died.
UPDATE jobs SET deaths = deaths + 1 WHERE id = :id;

-- name: count_call_death
-- The same for a call of a keyed one.
UPDATE payloads SET deaths = deaths + 1 WHERE job = :id AND place = 1 AND identity = :identity;

-- name: forget_worker
DELETE FROM workers WHERE id = :worker;

-- name: forget_turns
DELETE FROM turns WHERE worker NOT IN (SELECT id FROM workers WHERE dead = 0);

-- name: leases
SELECT name, counter, lease_s FROM workers WHERE dead = 0;

-- name: declare_dead
UPDATE workers SET dead = 1, seen_at = :now WHERE name = :name AND counter = :counter AND dead = 0;

-- name: claims_of_the_dead
SELECT DISTINCT worker FROM jobs
 WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers WHERE dead = 0);

-- name: untidy
-- Whether there is anything to give back or to forget. Asked every second by every worker; it only reads.
SELECT EXISTS (SELECT 1 FROM jobs
                WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers WHERE dead = 0))
    OR EXISTS (SELECT 1 FROM workers WHERE dead = 1 AND seen_at < :dead_before)
    OR EXISTS (SELECT 1 FROM turns WHERE worker NOT IN (SELECT id FROM workers WHERE dead = 0))
    OR EXISTS (SELECT 1 FROM endings WHERE ended_at < :ended_before);

-- name: forget_dead
DELETE FROM workers WHERE dead = 1 AND seen_at < :dead_before;

-- name: forget_endings
DELETE FROM endings WHERE ended_at < :ended_before;
