-- Finds what is wrong with the stored data, and repairs it.

-- name: resharding
SELECT name, shards, target, total, moved FROM queues WHERE target > 0;

-- name: queues_without_shards
SELECT count(*) FROM queues WHERE shards < 1;

-- name: repair_shards
UPDATE queues SET shards = :shards, target = 0 WHERE shards < 1;

-- name: strays
-- Ids of queues that do not exist and that jobs or dead jobs name.
SELECT queue FROM (SELECT DISTINCT queue FROM jobs UNION SELECT DISTINCT queue FROM morgue)
 WHERE queue NOT IN (SELECT id FROM queues);

-- name: make_stray
INSERT INTO queues (id, name, shards) VALUES (:queue, :name, :shards);

-- name: mistimed
-- Keyed jobs, not being run, that are due at another time than their earliest call.
SELECT json_group_array(id) FROM jobs j
 WHERE kind = 1 AND worker IS NULL AND perform_at <> max(coalesce(not_before, -1.0e300), (
    SELECT score FROM payloads WHERE job = j.id AND place = 0 ORDER BY score LIMIT 1));

-- name: dead_without_payloads
SELECT json_group_array(id) FROM morgue m
 WHERE kind > 0 AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = m.id AND place = 2);

-- name: dead_hold_claims
SELECT EXISTS (SELECT 1 FROM jobs WHERE worker IN (SELECT id FROM workers WHERE dead = 1));

-- name: claims_without_worker
SELECT count(*) FROM jobs INDEXED BY jobs_claimed WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers);

-- name: orphans
-- Payloads whose job is gone.
SELECT json_group_array(id) FROM payloads p
 WHERE (place = 2 AND NOT EXISTS (SELECT 1 FROM morgue WHERE id = p.job))
    OR (place <> 2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = p.job AND kind > 0));

-- name: bury_orphans
-- They are kept in the morgue of the queue :queue, each under a key of its own.
INSERT INTO morgue (queue, shard, key, payload, score, perform_at, retry_count, attempt, deaths, error, updated_at)
SELECT :queue, 0, 'payload-' || id || '-of-job-' || job, payload, score, perform_at, 0, attempt, deaths, :error, :now
  FROM payloads WHERE id IN (SELECT value FROM json_each(:ids))
    ON CONFLICT (queue, key) DO NOTHING;

-- name: delete_payloads
DELETE FROM payloads WHERE id IN (SELECT value FROM json_each(:ids));

-- name: jobs_without_payloads
-- Keyed and collecting jobs without any payload.
SELECT json_group_array(id) FROM jobs j
 WHERE kind > 0 AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = j.id AND place < 2);

-- name: queued_and_running
-- Jobs that are queued and have payloads that run, or the other way round.
SELECT json_group_array(id) FROM jobs j
 WHERE kind > 0 AND (worker IS NULL) = EXISTS (SELECT 1 FROM payloads WHERE job = j.id AND place = 1);

-- name: unreadable_filters
-- Subscriptions whose filter is not an object of lists.
SELECT count(*) FROM subscriptions
 WHERE filter IS NOT NULL
   AND iif(json_valid(filter), json_type(filter) <> 'object' OR EXISTS (
           SELECT 1 FROM json_each(filter) WHERE type <> 'array'), true);

-- name: drop_unreadable_filters
-- Too many events are better than none. The next subscription of the queue stores the filter again.
UPDATE subscriptions SET filter = NULL
 WHERE filter IS NOT NULL
   AND iif(json_valid(filter), json_type(filter) <> 'object' OR EXISTS (
           SELECT 1 FROM json_each(filter) WHERE type <> 'array'), true);
