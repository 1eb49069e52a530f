-- Every statement of the SQLite broker. Lists travel as JSON in one parameter, and answers of many rows come back
-- as one JSON text: Python gives up its lock for every row that SQLite steps to, and in a busy worker each time
-- costs more than the row.

-- ---------------------------------------------------------------------------------------------------- queues

-- name: queues
SELECT name, id, shards, priorities FROM queues ORDER BY name;

-- name: make_queue
INSERT INTO queues (name, shards) VALUES (:name, :shards) ON CONFLICT (name) DO NOTHING;

-- name: set_priorities
UPDATE queues SET priorities = :priorities WHERE id = :queue;

-- ------------------------------------------------------------------------------------------------- enqueueing

-- name: enqueue
-- :jobs is [[queue, shard, key, payload, score, perform_at, priority, expires, headers], …]. Nothing → queued.
-- A key that is queued or running already stays as it is: that is what makes a repeat harmless.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, headers)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
  FROM json_each(:jobs)
 WHERE true
    ON CONFLICT (queue, key) DO NOTHING;

-- name: enqueue_one
-- The same for one job, whose texts SQLite's JSON would cut off at a NUL.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, headers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (queue, key) DO NOTHING;

-- ------------------------------------------------------------------------------------------------------ turns

-- name: turn_begin
-- A living worker's id, its last turn on the queue, and the queue's priorities as they are now. No row: the worker
-- is dead or unknown.
SELECT w.id, t.seq, t.token, t.refused, q.priorities
  FROM workers w JOIN queues q ON q.id = :queue LEFT JOIN turns t ON t.worker = w.id AND t.queue = q.id
 WHERE w.name = :worker AND w.dead = 0;

-- name: turn_end
INSERT INTO turns (worker, queue, seq, token, refused) VALUES (:worker, :queue, :seq, :token, :refused)
    ON CONFLICT (worker, queue) DO UPDATE
   SET seq = excluded.seq, token = excluded.token, refused = excluded.refused;

-- name: next_token
UPDATE meta SET token = max(token + 1, :microseconds) WHERE id = 1;

-- name: token
SELECT token FROM meta WHERE id = 1;

-- name: still_held
-- Those of the jobs :ids that are still held under :token. All others are stale.
SELECT json_group_array(id) FROM jobs
 WHERE id IN (SELECT value FROM json_each(:ids)) AND token = :token AND worker IS NOT NULL;

-- name: settle_done
-- running → gone
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: settle_retry
-- running → queued, with the failure counted
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at, not_before = :perform_at,
       retry_count = :retry_count, error = :error
 WHERE id = :id;

-- name: settle_postpone
-- running → queued, later, not counted as a failure
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at WHERE id = :id;

-- name: settle_release
-- running → queued, as if it had not been claimed
UPDATE jobs SET worker = NULL, token = NULL, attempt = attempt - 1
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: settle_bury
-- running → dead; the row in `jobs` is removed by settle_done in the same transaction
INSERT INTO morgue (queue, shard, key, payload, score, perform_at, retry_count, priority, expires, attempt, deaths,
                    error, headers, updated_at)
SELECT queue, shard, key, payload, score, perform_at, :retry_count, priority, expires, attempt, deaths,
       :error, headers, :now
  FROM jobs WHERE id = :id
    ON CONFLICT (queue, key) DO UPDATE
   SET payload = excluded.payload, score = excluded.score, perform_at = excluded.perform_at,
       retry_count = excluded.retry_count, priority = excluded.priority, expires = excluded.expires,
       attempt = excluded.attempt, deaths = excluded.deaths, error = excluded.error, headers = excluded.headers,
       updated_at = excluded.updated_at;

-- name: count_runs
UPDATE queues SET processed = processed + :processed, failed = failed + :failed WHERE id = :queue;

-- name: claim
-- queued → running: the jobs of one priority that are due, oldest first. Each shard gives its :limit oldest, and of
-- these the :limit oldest are taken.
UPDATE jobs SET worker = :worker, token = :token, attempt = attempt + 1
 WHERE id IN (
    SELECT j.id FROM json_each(:shards) s CROSS JOIN jobs j
     WHERE j.id IN (
        SELECT id FROM jobs
         WHERE queue = :queue AND shard = s.value AND priority = :priority AND worker IS NULL AND perform_at <= :now
         ORDER BY perform_at, id LIMIT :limit)
     ORDER BY j.perform_at, j.id LIMIT :limit);

-- name: claimed_chars
SELECT sum(length(payload)) FROM jobs WHERE worker = :worker AND token = :token;

-- name: unclaim
-- running → queued: what this turn has claimed beyond :chars characters of payload
UPDATE jobs SET worker = NULL, token = NULL, attempt = attempt - 1
 WHERE id IN (
    SELECT id FROM (
        SELECT id, sum(length(payload)) OVER (ORDER BY priority DESC, perform_at, id) - length(payload) AS ahead
          FROM jobs WHERE worker = :worker AND token = :token)
     WHERE ahead >= :chars);

-- name: claimed
-- The claims of one turn, in the shape of laneway.job.Claim. `quote` writes a time in full; JSON alone would round
-- it to 15 digits.
SELECT json_group_array(json_array(:name, id, key, token, json(quote(perform_at)), retry_count, attempt, deaths,
                                   json_array(json_array(payload, json(quote(score)))), error, json(headers)))
  FROM (SELECT * FROM jobs WHERE worker = :worker AND token = :token ORDER BY priority DESC, perform_at, id);

-- name: next_due
-- When the earliest job of each of the queues :names is due. It reads shards and priorities itself: others may have
-- added some.
WITH RECURSIVE shard (queue, number, shards) AS (
    SELECT id, 0, shards FROM queues WHERE name IN (SELECT value FROM json_each(:names))
    UNION ALL SELECT queue, number + 1, shards FROM shard WHERE number + 1 < shards
)
SELECT q.name, min((SELECT perform_at FROM jobs
                     WHERE queue = shard.queue AND shard = shard.number AND priority = p.value AND worker IS NULL
                     ORDER BY perform_at LIMIT 1))
  FROM shard JOIN queues q ON q.id = shard.queue, json_each(q.priorities) p
 GROUP BY q.id;

-- ----------------------------------------------------------------------------------------------------- leases

-- name: join
INSERT INTO workers (name, host, pid, queues, concurrency, lease_s, started_at, seen_at)
VALUES (:name, :host, :pid, :queues, :concurrency, :lease_s, :now, :now)
    ON CONFLICT (name) DO NOTHING;

-- name: worker_id
SELECT id FROM workers WHERE name = :name AND dead = 0;

-- name: renew
UPDATE workers SET counter = counter + 1, seen_at = :now WHERE id = :worker;

-- name: give_back_unknown
-- running → queued: claims whose answer never reached the worker, so they were never started
UPDATE jobs SET worker = NULL, token = NULL, attempt = attempt - 1
 WHERE worker = :worker AND token < :before AND token NOT IN (SELECT value FROM json_each(:held));

-- name: give_back
-- running → queued: whatever a worker holds; it may have been started, so the attempt stays counted
UPDATE jobs SET worker = NULL, token = NULL WHERE worker = :worker;

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

-- ---------------------------------------------------------------------------------------------------- looking

-- name: stats
SELECT q.name, q.shards, q.processed, q.failed,
       count(j.id) FILTER (WHERE j.worker IS NULL),
       count(j.id) FILTER (WHERE j.worker IS NULL AND j.perform_at > :now),
       count(j.id) FILTER (WHERE j.worker IS NULL AND j.retry_count >= 0),
       count(j.id) FILTER (WHERE j.worker IS NOT NULL),
       coalesce(min(j.perform_at) FILTER (WHERE j.worker IS NULL AND j.perform_at <= :now), :now),
       (SELECT count(*) FROM morgue m WHERE m.queue = q.id)
  FROM queues q LEFT JOIN jobs j ON j.queue = q.id
 GROUP BY q.id ORDER BY q.name;

-- name: workers
SELECT w.name, w.host, w.pid, w.queues, w.concurrency, w.lease_s, w.started_at, w.seen_at, w.dead,
       (SELECT count(*) FROM jobs j WHERE j.worker = w.id)
  FROM workers w ORDER BY w.started_at, w.id;

-- name: find
SELECT json_array(j.id, j.key, j.shard, j.payload, json(quote(j.score)), json(quote(j.perform_at)), j.retry_count,
                  j.attempt, j.deaths, j.priority, j.error, NULL, j.worker IS NOT NULL,
                  (SELECT name FROM workers w WHERE w.id = j.worker))
  FROM jobs j WHERE j.queue = :queue AND j.key = :key;

-- name: find_dead
SELECT json_array(id, key, shard, payload, json(quote(score)), json(quote(perform_at)), retry_count, attempt,
                  deaths, priority, error, json(quote(updated_at)), 0, NULL)
  FROM morgue WHERE queue = :queue AND key = :key;

-- name: ending
SELECT status FROM endings WHERE queue = :queue AND key = :key;

-- name: list_queued
-- Queued jobs of a shard and priority after (:after_at, :after_id), by due time. Merged by the caller.
SELECT json_array(j.id, j.key, j.shard, j.payload, json(quote(j.score)), json(quote(j.perform_at)), j.retry_count,
                  j.attempt, j.deaths, j.priority, j.error, NULL, 0, NULL)
  FROM jobs j
 WHERE j.queue = :queue AND j.shard = :shard AND j.priority = :priority AND j.worker IS NULL
   AND (j.perform_at, j.id) > (:after_at, :after_id)
 ORDER BY j.perform_at, j.id LIMIT :limit;

-- name: list_retries
SELECT json_array(j.id, j.key, j.shard, j.payload, json(quote(j.score)), json(quote(j.perform_at)), j.retry_count,
                  j.attempt, j.deaths, j.priority, j.error, NULL, 0, NULL)
  FROM jobs j INDEXED BY jobs_retries
 WHERE j.queue = :queue AND j.retry_count >= 0 AND j.worker IS NULL
   AND (j.perform_at, j.id) > (:after_at, :after_id)
 ORDER BY j.perform_at, j.id LIMIT :limit;

-- name: list_running
SELECT json_array(j.id, j.key, j.shard, j.payload, json(quote(j.score)), json(quote(j.perform_at)), j.retry_count,
                  j.attempt, j.deaths, j.priority, j.error, NULL, 1, (SELECT name FROM workers w WHERE w.id = j.worker))
  FROM jobs j INDEXED BY jobs_claimed
 WHERE j.queue = :queue AND j.worker IS NOT NULL AND (j.perform_at, j.id) > (:after_at, :after_id)
 ORDER BY j.perform_at, j.id LIMIT :limit;

-- name: list_dead
SELECT json_array(id, key, shard, payload, json(quote(score)), json(quote(perform_at)), retry_count, attempt,
                  deaths, priority, error, json(quote(updated_at)), 0, NULL)
  FROM morgue
 WHERE queue = :queue AND (updated_at, id) > (:after_at, :after_id)
 ORDER BY updated_at, id LIMIT :limit;

-- ----------------------------------------------------------------------------------------------------- acting

-- name: cancel
-- queued → gone
DELETE FROM jobs WHERE queue = :queue AND key = :key AND worker IS NULL;

-- name: remember
INSERT INTO endings (queue, key, status, ended_at) VALUES (:queue, :key, :status, :now)
    ON CONFLICT (queue, key) DO UPDATE SET status = excluded.status, ended_at = excluded.ended_at;

-- name: reschedule
UPDATE jobs SET perform_at = :perform_at WHERE queue = :queue AND key = :key AND worker IS NULL;

-- name: revive
-- dead → queued; the row in `morgue` is removed by delete_dead in the same transaction. Nothing happens while the
-- key is being run: the dead job would have no place to go to.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, attempt, deaths, error, headers)
SELECT queue, shard, key, payload, score, :now, priority, expires, attempt, 0, error, headers
  FROM morgue WHERE queue = :queue AND key = :key
    ON CONFLICT (queue, key) DO UPDATE SET perform_at = excluded.perform_at, retry_count = -1 WHERE worker IS NULL;

-- name: delete_dead
-- dead → gone
DELETE FROM morgue WHERE queue = :queue AND key = :key;
