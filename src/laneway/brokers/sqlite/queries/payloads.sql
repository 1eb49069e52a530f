-- Payloads of keyed and collecting jobs on their way from place to place: 0 queued, 1 running, 2 dead.

-- name: finish_payloads
-- running → gone: some of a job's
DELETE FROM payloads WHERE job = :id AND place = 1 AND identity IN (SELECT value FROM json_each(:identities));

-- name: uncount_payloads
-- Those of a keyed job that were claimed and never started.
UPDATE payloads SET attempt = attempt - 1
 WHERE job = :id AND place = 1 AND identity NOT IN (SELECT value FROM json_each(:started));

-- name: set_head
-- A call that failed or was postponed stays before all others of its key.
UPDATE payloads SET score = -1.0e300 WHERE job = :id AND place = 1 AND identity = :identity;

-- name: back_smaller
-- running → queued, in three steps. First: of equal payloads, the queued one gets the smaller score and more deaths.
UPDATE payloads SET (score, deaths) = (
           SELECT min(payloads.score, r.score), max(payloads.deaths, r.deaths) FROM payloads r
            WHERE r.job = payloads.job AND r.place = 1 AND r.identity = payloads.identity)
 WHERE id IN (
    SELECT q.id FROM json_each(:ids) i CROSS JOIN payloads r ON r.job = i.value AND r.place = 1
     CROSS JOIN payloads q ON q.job = r.job AND q.place = 0 AND q.identity = r.identity);

-- name: back_equal
-- Second: the running one goes.
DELETE FROM payloads WHERE id IN (
    SELECT r.id FROM json_each(:ids) i CROSS JOIN payloads r ON r.job = i.value AND r.place = 1
     CROSS JOIN payloads q ON q.job = r.job AND q.place = 0 AND q.identity = r.identity);

-- name: back_rest
-- Third: all others are queued again; :unstarted takes back that they were handed out.
UPDATE payloads SET place = 0, attempt = max(attempt - :unstarted, 0)
 WHERE id IN (SELECT p.id FROM json_each(:ids) i CROSS JOIN payloads p ON p.job = i.value AND p.place = 1);

-- name: back_jobs
-- running → queued: their jobs, as they were before; what was set aside joins them
UPDATE jobs SET worker = NULL, token = NULL, attempt = attempt - :unstarted,
       perform_at = iif(kind = 1 AND not_before IS NULL AND next_at < perform_at, next_at, perform_at),
       next_at = NULL, since = NULL
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: lift
-- Some of a job's payloads on their way from one row to another: place 3, for as long as the transaction.
UPDATE payloads SET place = 3, score = iif(:kind = 1, perform_at, score)
 WHERE job = :id AND place = :place AND identity IN (SELECT value FROM json_each(:identities));

-- name: lift_all
UPDATE payloads SET place = 3, deaths = 0, score = iif(:kind = 1, min(perform_at, :latest), score),
       perform_at = min(perform_at, :latest)
 WHERE job = :id AND place = :place;

-- name: lower_smaller
-- They arrive at the row :to in :place, in three steps like those above.
UPDATE payloads SET (score, deaths) = (
           SELECT min(payloads.score, p.score), max(payloads.deaths, p.deaths) FROM payloads p
            WHERE p.job = :id AND p.place = 3 AND p.identity = payloads.identity)
 WHERE job = :to AND place = :place
   AND identity IN (SELECT identity FROM payloads WHERE job = :id AND place = 3);

-- name: lower_equal
DELETE FROM payloads WHERE job = :id AND place = 3
   AND identity IN (SELECT identity FROM payloads WHERE job = :to AND place = :place);

-- name: lower_rest
UPDATE payloads SET job = :to, place = :place WHERE job = :id AND place = 3;

-- name: plain_dead_as_payload
-- A dead plain job whose key is now another kind's becomes one of its payloads.
INSERT INTO payloads (job, place, score, identity, payload, perform_at, attempt, headers, deaths)
SELECT id, 2, score, key, payload, perform_at, attempt, headers, deaths
  FROM morgue WHERE queue = :queue AND key = :key AND kind = 0;
