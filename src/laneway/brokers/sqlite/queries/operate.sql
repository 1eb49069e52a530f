-- Cancels, reschedules, runs now, buries, deletes and revives jobs.

-- name: remove_job
-- queued → gone
DELETE FROM jobs WHERE id = :id;

-- name: remove_payloads
-- queued or dead → gone: all of a row's
DELETE FROM payloads WHERE job = :id AND place = :place;

-- name: remove_payload
-- queued → gone: one
DELETE FROM payloads WHERE job = :id AND place = 0 AND identity = :identity RETURNING score;

-- name: remember
INSERT INTO endings (queue, key, identity, status, ended_at) VALUES (:queue, :key, :identity, :status, :now)
    ON CONFLICT (queue, key, identity) DO UPDATE SET status = excluded.status, ended_at = excluded.ended_at;

-- name: forget_head
-- The call for which a key rests is gone: the others start again with all their retries.
UPDATE jobs SET not_before = NULL, retry_count = -1, error = NULL WHERE id = :id AND worker IS NULL;

-- name: due_again
-- A keyed job is due with its earliest call, unless it rests; of one that runs that is said of what waits.
UPDATE jobs
   SET perform_at = iif(worker IS NULL AND kind = 1, max(coalesce(not_before, -1.0e300), (
           SELECT score FROM payloads WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1)), perform_at),
       next_at = iif(worker IS NULL, NULL, (
           SELECT iif(jobs.kind = 1, score, jobs.next_at) FROM payloads
            WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1)),
       since = iif(EXISTS (SELECT 1 FROM payloads WHERE job = jobs.id AND place = 0), since, NULL)
 WHERE id = :id;

-- name: reschedule
UPDATE jobs SET perform_at = :perform_at, not_before = :not_before, since = NULL, latest = min(latest, :latest)
 WHERE id = :id;

-- name: reschedule_aside
UPDATE jobs SET next_at = :perform_at, since = NULL WHERE id = :id;

-- name: hasten_payloads
-- Calls that are due later than :perform_at are due then.
UPDATE payloads SET score = :perform_at, perform_at = :perform_at
 WHERE job = :id AND place = 0 AND score > :perform_at;

-- name: reschedule_payload
UPDATE payloads SET score = iif(score = -1.0e300, score, :perform_at),
       perform_at = iif(score = -1.0e300, perform_at, :perform_at)
 WHERE job = :id AND place = 0 AND identity = :identity RETURNING score;

-- name: first_score
SELECT score, identity FROM payloads WHERE job = :id AND place = 0 ORDER BY score, id LIMIT 1;

-- name: has_payload
SELECT 1 FROM payloads WHERE job = :id AND place = 0 AND identity = :identity;

-- name: identities
SELECT json_group_array(identity) FROM payloads WHERE job = :id AND place = 0;

-- name: revive
-- dead → queued: a plain job; the row in `morgue` is removed by delete_dead in the same transaction. Nothing happens
-- while the key is being run: the dead job would have no place to go to.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, attempt, deaths, error, headers)
SELECT queue, :shard, key, payload, score, :now, priority, expires, attempt, 0, error, headers
  FROM morgue WHERE id = :id
    ON CONFLICT (queue, key) DO UPDATE SET perform_at = excluded.perform_at, not_before = NULL, retry_count = -1,
       deaths = 0
       WHERE worker IS NULL AND kind = 0;

-- name: revive_row
-- dead → queued: the row of a keyed or collecting job, if its key has none
INSERT INTO jobs (queue, shard, key, kind, perform_at, priority, error)
SELECT queue, :shard, key, kind, :now, priority, error FROM morgue WHERE id = :id
    ON CONFLICT (queue, key) DO NOTHING;

-- name: revived
-- What has come back from the morgue is due now, with all its retries; while its key is being run it is set aside.
UPDATE jobs
   SET perform_at = iif(worker IS NULL, :now, perform_at), retry_count = iif(worker IS NULL, -1, retry_count),
       not_before = iif(worker IS NULL, NULL, not_before), since = NULL, deaths = iif(worker IS NULL, 0, deaths),
       next_at = iif(worker IS NULL, NULL, iif(kind = 2, :now, (
           SELECT score FROM payloads WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1)))
 WHERE id = :id;

-- name: delete_dead
-- dead → gone
DELETE FROM morgue WHERE id = :id;
