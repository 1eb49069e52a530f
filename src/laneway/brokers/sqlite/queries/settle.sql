-- The first half of a turn: settles jobs whose run has ended. `payloads.sql` moves their payloads.

-- name: turn_begin
-- A living worker's id, its last turn on the queue, and the queue's priorities as they are now. No row: the worker
-- is dead or unknown.
SELECT w.id, t.seq, t.token, t.refused, q.priorities, q.shards, q.epoch, q.target, q.paused
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
-- Those of the jobs :ids that :worker still holds under :token. All others are stale.
SELECT json_group_array(id) FROM jobs
 WHERE id IN (SELECT value FROM json_each(:ids)) AND token = :token AND worker = :worker;

-- name: settle_done
-- running → gone
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: settle_ran
-- running → gone: all that ran of keyed and collecting jobs. What waits of them is left to `settle_next`.
DELETE FROM payloads WHERE id IN (
    SELECT p.id FROM json_each(:ids) i CROSS JOIN payloads p ON p.job = i.value AND p.place = 1);

-- name: settle_empty
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND next_at IS NULL;

-- name: settle_next
-- running → queued: what was left or set aside is a job like a new one
UPDATE jobs SET worker = NULL, token = NULL, perform_at = next_at, next_at = NULL, not_before = NULL,
       retry_count = -1, error = NULL, attempt = 0, deaths = 0
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: settle_retry
-- running → queued, with the failure counted
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at, not_before = :perform_at,
       retry_count = :retry_count, error = :error, deaths = deaths + :died
 WHERE id = :id;

-- name: settle_postpone
-- running → queued, later, not counted as a failure
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at, deaths = deaths + :died WHERE id = :id;

-- name: settle_bury
-- running → dead; the row in `jobs` is removed by settle_done in the same transaction, payloads of keyed and
-- collecting jobs are carried over after it
INSERT INTO morgue (queue, shard, key, kind, payload, score, perform_at, retry_count, priority, expires, attempt, deaths,
                    error, headers, updated_at)
SELECT queue, shard, key, kind, payload, score, perform_at, :retry_count, priority, expires, attempt, deaths + :died,
       :error, headers, :now
  FROM jobs WHERE id = :id
    ON CONFLICT (queue, key) DO UPDATE
   SET kind = excluded.kind, payload = excluded.payload, score = excluded.score, perform_at = excluded.perform_at,
       retry_count = excluded.retry_count, priority = excluded.priority, expires = excluded.expires,
       attempt = excluded.attempt, error = excluded.error, headers = excluded.headers,
       deaths = iif(excluded.kind = 2 AND kind = 2, max(deaths, excluded.deaths), excluded.deaths),
       updated_at = excluded.updated_at;

-- name: bury_attempt
-- Each call has its own count: the morgue tells that of the one that was buried last, as it tells its error.
UPDATE morgue SET attempt = (SELECT attempt FROM payloads WHERE job = :id AND place = :place AND identity = :identity)
 WHERE id = :morgue;

-- name: settle_again
-- running → queued: a keyed or collecting job, again at :perform_at. A keyed one counts the attempts of its head.
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at, not_before = iif(kind = 1, :perform_at, NULL),
       retry_count = :retry_count, error = :error, deaths = deaths + :died, next_at = NULL, since = NULL,
       attempt = iif(kind = 1, (SELECT attempt FROM payloads WHERE job = :id AND place = 0 AND score = -1.0e300), attempt)
 WHERE id = :id;

-- name: settle_rest
-- running or queued → queued: what is left of a keyed or collecting job is like new
UPDATE jobs SET worker = NULL, token = NULL, not_before = NULL, retry_count = -1, error = NULL, attempt = 0, deaths = 0,
       next_at = NULL, since = NULL, perform_at = iif(kind = 2, :now, (
           SELECT score FROM payloads WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1))
 WHERE id = :id;

-- name: without_payloads
-- A keyed or collecting job that has nothing left is gone.
DELETE FROM jobs WHERE id = :id AND kind > 0 AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = :id AND place < 2);

-- name: count_runs
UPDATE queues SET processed = processed + :processed, failed = failed + :failed WHERE id = :queue;
