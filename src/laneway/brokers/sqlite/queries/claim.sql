-- The second half of a turn: claims due jobs. Also: when the next job is due.

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

-- name: claim_batches
-- The same, :batch jobs at a time from one shard: by the due time of a batch's first job or, with :in_order, in the
-- order of :shards, round and round.
UPDATE jobs SET worker = :worker, token = :token, attempt = attempt + 1
 WHERE id IN (
    SELECT id FROM (
        SELECT id, place, round, perform_at,
               first_value(perform_at) OVER batch AS head_at, first_value(id) OVER batch AS head
          FROM (SELECT j.id, j.perform_at, s.key AS place,
                       (row_number() OVER (PARTITION BY s.key ORDER BY j.perform_at, j.id) - 1) / :batch AS round
                  FROM json_each(:shards) s CROSS JOIN jobs j
                 WHERE j.id IN (
                    SELECT id FROM jobs
                     WHERE queue = :queue AND shard = s.value AND priority = :priority AND worker IS NULL
                       AND perform_at <= :now
                     ORDER BY perform_at, id LIMIT :limit))
        WINDOW batch AS (PARTITION BY place, round ORDER BY perform_at, id))
     ORDER BY iif(:in_order, round, 0), iif(:in_order, place, head_at), head, perform_at, id
     LIMIT :limit);

-- name: run_calls
-- queued → running: the calls that the keyed jobs :ids are claimed for, those that are due, in order
UPDATE payloads SET place = 1, attempt = attempt + 1
 WHERE id IN (
    SELECT p.id FROM json_each(:ids) i CROSS JOIN payloads p
     WHERE p.id IN (
        SELECT id FROM payloads WHERE job = i.value AND place = 0 AND score <= :now
         ORDER BY score, id LIMIT :most));

-- name: run_values
-- queued → running: what the collecting jobs :ids are claimed for, the smallest scores
UPDATE payloads SET place = 1
 WHERE id IN (
    SELECT p.id FROM json_each(:ids) i CROSS JOIN payloads p
     WHERE p.id IN (
        SELECT id FROM payloads WHERE job = i.value AND place = 0
         ORDER BY score, payload LIMIT :most));

-- name: leave_waiting
-- When what is left of them, queued beside what runs, is due; NULL if nothing is.
UPDATE jobs SET since = NULL, next_at = (
       SELECT iif(jobs.kind = 2, jobs.perform_at, p.score) FROM payloads p
        WHERE p.job = jobs.id AND p.place = 0 ORDER BY p.score LIMIT 1)
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: running_chars
SELECT sum(length(p.payload)) FROM json_each(:ids) i CROSS JOIN payloads p ON p.job = i.value AND p.place = 1;

-- name: stop_running
-- running → queued: what the jobs :ids, in this order, were claimed for beyond :chars characters
UPDATE payloads SET place = 0, attempt = max(attempt - 1, 0)
 WHERE id IN (
    SELECT id FROM (
        SELECT p.id, i.key AS number, sum(length(p.payload)) OVER (
                   ORDER BY i.key, p.score, iif(j.kind = 2, p.payload, ''), p.id) - length(p.payload) AS ahead
          FROM json_each(:ids) i CROSS JOIN jobs j ON j.id = i.value
         CROSS JOIN payloads p ON p.job = j.id AND p.place = 1)
     WHERE ahead >= :chars);

-- name: idle_claims
-- Those of the jobs :ids that nothing runs of.
SELECT json_group_array(i.value) FROM json_each(:ids) i
 WHERE NOT EXISTS (SELECT 1 FROM payloads p WHERE p.job = i.value AND p.place = 1);

-- name: running_payloads
-- What runs of the jobs :ids, as [job, payload, score, identity, attempt, headers, deaths], in order.
SELECT json_group_array(json_array(job, payload, json(quote(score)), identity, attempt, json(headers), deaths))
  FROM (SELECT p.job, p.payload, iif(p.score = -1.0e300, p.perform_at, p.score) AS score, p.identity, p.attempt,
               p.headers, p.deaths
          FROM json_each(:ids) i CROSS JOIN jobs j ON j.id = i.value
         CROSS JOIN payloads p ON p.job = j.id AND p.place = 1
         ORDER BY i.key, p.score, iif(j.kind = 2, p.payload, ''), p.id);

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
-- The claims of one turn, in the shape of laneway.jobs.data.Claim. `quote` writes a time in full; JSON alone would round
-- it to 15 digits. Payloads of keyed and collecting jobs are read by running_payloads.
SELECT json_group_array(json_array(:name, id, key, token, json(quote(perform_at)), retry_count, attempt, deaths,
                                   json_array(json_array(coalesce(payload, ''), json(quote(score)))), error,
                                   json(headers), kind, shard, priority))
  FROM (SELECT * FROM jobs WHERE worker = :worker AND token = :token ORDER BY priority DESC, perform_at, id);

-- name: next_due
-- When the earliest job of each of the queues :names is due; long ago for one that is being resharded, so that
-- the waiting worker helps to reshard it; no row for one that is paused. It reads shards and priorities itself, because
-- another process may have added some.
WITH RECURSIVE shard (queue, number, shards) AS (
    SELECT id, 0, shards FROM queues
     WHERE name IN (SELECT value FROM json_each(:names)) AND (paused = 0 OR target > 0)
    UNION ALL SELECT queue, number + 1, shards FROM shard WHERE number + 1 < shards
)
SELECT q.name, iif(q.target > 0, -1.0e300,
                   min((SELECT perform_at FROM jobs
                         WHERE queue = shard.queue AND shard = shard.number AND priority = p.value AND worker IS NULL
                         ORDER BY perform_at LIMIT 1)))
  FROM shard JOIN queues q ON q.id = shard.queue, json_each(q.priorities) p
 GROUP BY q.id;
