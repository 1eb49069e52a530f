-- Every statement of the SQLite broker. Lists travel as JSON in one parameter, and answers of many rows come back
-- as one JSON text: Python gives up its lock for every row that SQLite steps to, and in a busy worker each time
-- costs more than the row.

-- ---------------------------------------------------------------------------------------------------- queues

-- name: epoch
SELECT epoch FROM meta WHERE id = 1;

-- name: queues
SELECT name, id, shards, priorities, epoch, target FROM queues ORDER BY name;

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

-- ---------------------------------------------------------------------------- enqueueing keyed and collecting

-- name: key_states
-- What there is of the keys :keys ([[queue, key], …]) already. Times are quoted, because JSON would round them; of
-- payloads :most at most are counted.
SELECT json_group_array(json_array(
           j.queue, j.key, j.id, j.kind, j.worker IS NOT NULL, quote(j.perform_at), quote(j.not_before),
           j.retry_count, quote(j.next_at), quote(j.since),
           quote((SELECT max(score) FROM payloads WHERE job = j.id AND place = 0)),
           quote((SELECT max(score) FROM payloads WHERE job = j.id AND place = 1)),
           (SELECT count(*) FROM (SELECT 1 FROM payloads WHERE job = j.id AND place = 0 LIMIT :most))))
  FROM json_each(:keys) k
 CROSS JOIN jobs j ON j.queue = json_extract(k.value, '$[0]') AND j.key = json_extract(k.value, '$[1]');

-- name: known_payloads
-- Those of :payloads ([[job, identity], …]) that are queued or running: [job, identity, place, score].
SELECT json_group_array(json_array(p.job, p.identity, p.place, quote(p.score)))
  FROM json_each(:payloads) n
 CROSS JOIN payloads p ON p.job = json_extract(n.value, '$[0]') AND p.place IN (0, 1)
                      AND p.identity = json_extract(n.value, '$[1]');

-- name: add_jobs
-- Nothing → queued, without payloads yet. :jobs is [[queue, shard, key, kind, perform_at, since, priority], …].
INSERT INTO jobs (queue, shard, key, kind, perform_at, since, priority)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]')
  FROM json_each(:jobs);

-- name: move_jobs
-- :jobs is [[id, perform_at, next_at, since], …]: when the queued or waiting part is due after more was added.
UPDATE jobs SET perform_at = json_extract(n.value, '$[1]'), next_at = json_extract(n.value, '$[2]'),
       since = json_extract(n.value, '$[3]')
  FROM json_each(:jobs) n WHERE jobs.id = json_extract(n.value, '$[0]');

-- name: add_payloads
-- Nothing → queued. :payloads is [[queue, key, score, identity, payload, perform_at, headers], …], in order of
-- arrival. An equal payload keeps the smaller score.
INSERT INTO payloads (job, place, score, identity, payload, perform_at, headers)
SELECT j.id, 0, json_extract(n.value, '$[2]'), json_extract(n.value, '$[3]'), json_extract(n.value, '$[4]'),
       json_extract(n.value, '$[5]'), json_extract(n.value, '$[6]')
  FROM json_each(:payloads) n
 CROSS JOIN jobs j ON j.queue = json_extract(n.value, '$[0]') AND j.key = json_extract(n.value, '$[1]')
 WHERE true
    ON CONFLICT (job, place, identity) DO UPDATE SET score = min(score, excluded.score);

-- name: add_payload
-- The same for one, whose text SQLite's JSON would cut off at a NUL.
INSERT INTO payloads (job, place, score, identity, payload, perform_at, headers)
SELECT id, 0, ?3, ?4, ?5, ?6, ?7 FROM jobs WHERE queue = ?1 AND key = ?2
    ON CONFLICT (job, place, identity) DO UPDATE SET score = min(score, excluded.score);

-- ------------------------------------------------------------------------------------------------------ turns

-- name: turn_begin
-- A living worker's id, its last turn on the queue, and the queue's priorities as they are now. No row: the worker
-- is dead or unknown.
SELECT w.id, t.seq, t.token, t.refused, q.priorities, q.shards, q.epoch, q.target
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
-- running → dead; the row in `jobs` is removed by settle_done in the same transaction, payloads of keyed and
-- collecting jobs are carried over after it
INSERT INTO morgue (queue, shard, key, kind, payload, score, perform_at, retry_count, priority, expires, attempt, deaths,
                    error, headers, updated_at)
SELECT queue, shard, key, kind, payload, score, perform_at, :retry_count, priority, expires, attempt, deaths,
       :error, headers, :now
  FROM jobs WHERE id = :id
    ON CONFLICT (queue, key) DO UPDATE
   SET kind = excluded.kind, payload = excluded.payload, score = excluded.score, perform_at = excluded.perform_at,
       retry_count = excluded.retry_count, priority = excluded.priority, expires = excluded.expires,
       attempt = excluded.attempt, deaths = excluded.deaths, error = excluded.error, headers = excluded.headers,
       updated_at = excluded.updated_at;

-- name: settle_again
-- running → queued: a keyed or collecting job, again at :perform_at
UPDATE jobs SET worker = NULL, token = NULL, perform_at = :perform_at, not_before = iif(kind = 1, :perform_at, NULL),
       retry_count = :retry_count, error = :error, next_at = NULL, since = NULL
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

-- ------------------------------------------------------------------------------ payloads from place to place

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
-- running → queued, in three steps. First: of equal payloads, the queued one gets the smaller score.
UPDATE payloads SET score = min(score, (
           SELECT score FROM payloads r WHERE r.job = payloads.job AND r.place = 1 AND r.identity = payloads.identity))
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
UPDATE payloads SET place = 3, score = iif(:kind = 1, min(perform_at, :latest), score)
 WHERE job = :id AND place = :place;

-- name: lower_smaller
-- They arrive at the row :to in :place, in three steps like those above.
UPDATE payloads SET score = min(score, (
           SELECT score FROM payloads p WHERE p.job = :id AND p.place = 3 AND p.identity = payloads.identity))
 WHERE job = :to AND place = :place
   AND identity IN (SELECT identity FROM payloads WHERE job = :id AND place = 3);

-- name: lower_equal
DELETE FROM payloads WHERE job = :id AND place = 3
   AND identity IN (SELECT identity FROM payloads WHERE job = :to AND place = :place);

-- name: lower_rest
UPDATE payloads SET job = :to, place = :place WHERE job = :id AND place = 3;

-- name: plain_dead_as_payload
-- A dead plain job whose key is now another kind's becomes one of its payloads.
INSERT INTO payloads (job, place, score, identity, payload, perform_at, attempt, headers)
SELECT id, 2, score, key, payload, perform_at, attempt, headers
  FROM morgue WHERE queue = :queue AND key = :key AND kind = 0;

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
-- What runs of the jobs :ids, as [job, payload, score, identity, attempt, headers], in order.
SELECT json_group_array(json_array(job, payload, json(quote(score)), identity, attempt, json(headers)))
  FROM (SELECT p.job, p.payload, iif(p.score = -1.0e300, p.perform_at, p.score) AS score, p.identity, p.attempt,
               p.headers
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
-- The claims of one turn, in the shape of laneway.job.Claim. `quote` writes a time in full; JSON alone would round
-- it to 15 digits. Payloads of keyed and collecting jobs are read by running_payloads.
SELECT json_group_array(json_array(:name, id, key, token, json(quote(perform_at)), retry_count, attempt, deaths,
                                   json_array(json_array(coalesce(payload, ''), json(quote(score)))), error,
                                   json(headers), kind, shard, priority))
  FROM (SELECT * FROM jobs WHERE worker = :worker AND token = :token ORDER BY priority DESC, perform_at, id);

-- name: next_due
-- When the earliest job of each of the queues :names is due; long ago for one that is being resharded, so that
-- whoever waits goes and helps. It reads shards and priorities itself: others may have added some.
WITH RECURSIVE shard (queue, number, shards) AS (
    SELECT id, 0, shards FROM queues WHERE name IN (SELECT value FROM json_each(:names))
    UNION ALL SELECT queue, number + 1, shards FROM shard WHERE number + 1 < shards
)
SELECT q.name, iif(q.target > 0, -1.0e300,
                   min((SELECT perform_at FROM jobs
                         WHERE queue = shard.queue AND shard = shard.number AND priority = p.value AND worker IS NULL
                         ORDER BY perform_at LIMIT 1)))
  FROM shard JOIN queues q ON q.id = shard.queue, json_each(q.priorities) p
 GROUP BY q.id;

-- ----------------------------------------------------------------------------------------------------- leases

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
       count(j.id) FILTER (WHERE j.worker IS NULL OR j.next_at IS NOT NULL),
       count(j.id) FILTER (WHERE (j.worker IS NULL AND j.perform_at > :now) OR j.next_at > :now),
       count(j.id) FILTER (WHERE j.worker IS NULL AND j.retry_count >= 0),
       count(j.id) FILTER (WHERE j.worker IS NOT NULL),
       coalesce(min(j.perform_at) FILTER (WHERE j.worker IS NULL AND j.perform_at <= :now), :now),
       (SELECT count(*) FROM morgue m WHERE m.queue = q.id)
  FROM queues q LEFT JOIN jobs j ON j.queue = q.id
 GROUP BY q.id ORDER BY q.name;

-- name: workers
SELECT w.name, w.host, w.pid, w.queues, w.concurrency, w.lease_s, w.started_at, w.seen_at, w.dead, w.shards,
       (SELECT count(*) FROM jobs j WHERE j.worker = w.id)
  FROM workers w ORDER BY w.started_at, w.id;

-- name: payloads_in
-- The first :limit payloads of a row in a place, and how many there are.
SELECT json_group_array(json_array(payload, json(quote(score)), identity, attempt, json(headers))),
       (SELECT count(*) FROM payloads WHERE job = :job AND place = :place)
  FROM (SELECT payload, iif(score = -1.0e300, perform_at, score) AS score, identity, attempt, headers FROM payloads p
         WHERE job = :job AND place = :place
         ORDER BY p.score, iif(:kind = 2, payload, ''), id LIMIT :limit);

-- name: payload_at
-- Where a payload of a key is: its place, and when it and its job are due.
SELECT p.place, p.score, j.perform_at, j.worker IS NOT NULL, j.next_at, j.kind
  FROM jobs j JOIN payloads p ON p.job = j.id AND p.identity = :identity AND p.place < 2
 WHERE j.queue = :queue AND j.key = :key ORDER BY p.place DESC LIMIT 1;

-- name: payload_dead
SELECT 1 FROM morgue m JOIN payloads p ON p.job = m.id AND p.place = 2 AND p.identity = :identity
 WHERE m.queue = :queue AND m.key = :key;

-- name: ending
SELECT status FROM endings WHERE queue = :queue AND key = :key AND identity = :identity;

-- ----------------------------------------------------------------------------------------------------- acting

-- name: job_at
SELECT id, kind, worker IS NOT NULL, retry_count, perform_at, not_before, error
  FROM jobs WHERE queue = :queue AND key = :key;

-- name: key_of
SELECT queue, key FROM jobs WHERE id = :id;

-- name: dead_at
SELECT id, kind FROM morgue WHERE queue = :queue AND key = :key;

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
-- The call for which a key rests is gone: the others begin anew.
UPDATE jobs SET not_before = NULL, retry_count = -1, error = NULL WHERE id = :id AND worker IS NULL;

-- name: due_again
-- A keyed job is due with its earliest call, unless it rests; of one that runs that is said of what waits.
UPDATE jobs
   SET perform_at = iif(worker IS NULL AND kind = 1, max(coalesce(not_before, -1.0e300), (
           SELECT score FROM payloads WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1)), perform_at),
       next_at = iif(worker IS NULL, NULL, (
           SELECT iif(jobs.kind = 1, score, jobs.next_at) FROM payloads
            WHERE job = jobs.id AND place = 0 ORDER BY score LIMIT 1))
 WHERE id = :id;

-- name: reschedule
UPDATE jobs SET perform_at = :perform_at, not_before = :not_before, since = NULL WHERE id = :id;

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
    ON CONFLICT (queue, key) DO UPDATE SET perform_at = excluded.perform_at, not_before = NULL, retry_count = -1
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

-- --------------------------------------------------------------------------------------------------- resharding

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

-- --------------------------------------------------------------------------------------- checking and mending

-- name: resharding
SELECT name, shards, target, total, moved FROM queues WHERE target > 0;

-- name: dead_hold_claims
SELECT EXISTS (SELECT 1 FROM jobs WHERE worker IN (SELECT id FROM workers WHERE dead = 1));

-- name: claims_of_nobody
SELECT count(*) FROM jobs INDEXED BY jobs_claimed WHERE worker IS NOT NULL AND worker NOT IN (SELECT id FROM workers);

-- name: orphans
-- Payloads whose job is gone.
SELECT json_group_array(id) FROM payloads p
 WHERE (place = 2 AND NOT EXISTS (SELECT 1 FROM morgue WHERE id = p.job))
    OR (place <> 2 AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = p.job AND kind > 0));

-- name: bury_orphans
-- They are kept in the morgue of the queue :queue, each under a key of its own.
INSERT INTO morgue (queue, shard, key, payload, score, perform_at, retry_count, attempt, deaths, error, updated_at)
SELECT :queue, 0, 'payload-' || id || '-of-job-' || job, payload, score, perform_at, 0, attempt, 0, :error, :now
  FROM payloads WHERE id IN (SELECT value FROM json_each(:ids))
    ON CONFLICT (queue, key) DO NOTHING;

-- name: delete_payloads
DELETE FROM payloads WHERE id IN (SELECT value FROM json_each(:ids));

-- name: hollow
-- Keyed and collecting jobs without any payload.
SELECT json_group_array(id) FROM jobs j
 WHERE kind > 0 AND NOT EXISTS (SELECT 1 FROM payloads WHERE job = j.id AND place < 2);

-- name: torn
-- Jobs that are queued and have payloads that run, or the other way round.
SELECT json_group_array(id) FROM jobs j
 WHERE kind > 0 AND (worker IS NULL) = EXISTS (SELECT 1 FROM payloads WHERE job = j.id AND place = 1);

-- ---------------------------------------------------------------------------------------------------- listings

-- Each gives the ids of a page after a position, with what it is sorted by. `ASC` and `>` are turned round for a
-- listing in reverse. :due_after leaves out what is due by then.

-- name: list_by_time
-- Queued jobs of a shard and priority. Merged by the caller. :fresh leaves out those that have failed.
SELECT perform_at, id FROM jobs
 WHERE queue = :queue AND shard = :shard AND priority = :priority AND worker IS NULL
   AND (perform_at, id) > (:at, :id) AND perform_at > :due_after AND (retry_count = -1 OR NOT :fresh)
 ORDER BY perform_at ASC, id ASC LIMIT :limit;

-- name: list_retries_by_time
SELECT perform_at, id FROM jobs INDEXED BY jobs_retries
 WHERE queue = :queue AND retry_count >= 0 AND worker IS NULL AND (perform_at, id) > (:at, :id)
 ORDER BY perform_at ASC, id ASC LIMIT :limit;

-- name: list_running_by_time
SELECT perform_at, id FROM jobs INDEXED BY jobs_claimed
 WHERE queue = :queue AND worker IS NOT NULL AND (perform_at, id) > (:at, :id)
 ORDER BY perform_at ASC, id ASC LIMIT :limit;

-- name: list_dead_by_time
SELECT updated_at, id FROM morgue
 WHERE queue = :queue AND (updated_at, id) > (:at, :id)
 ORDER BY updated_at ASC, id ASC LIMIT :limit;

-- name: list_by_key
SELECT key, id FROM jobs INDEXED BY jobs_key
 WHERE queue = :queue AND (key, id) > (:at, :id) AND worker IS NULL AND perform_at > :due_after
   AND retry_count >= :least
 ORDER BY key ASC, id ASC LIMIT :limit;

-- name: list_running_by_key
SELECT key, id FROM jobs INDEXED BY jobs_claimed
 WHERE queue = :queue AND worker IS NOT NULL AND (key, id) > (:at, :id)
 ORDER BY key ASC, id ASC LIMIT :limit;

-- name: list_dead_by_key
SELECT key, id FROM morgue
 WHERE queue = :queue AND (key, id) > (:at, :id)
 ORDER BY key ASC, id ASC LIMIT :limit;

-- name: list_by_retry_count
SELECT retry_count, perform_at, id FROM jobs INDEXED BY jobs_retry_count
 WHERE queue = :queue AND retry_count >= 0 AND worker IS NULL
   AND (retry_count, perform_at, id) > (:count, :at, :id) AND perform_at > :due_after
 ORDER BY retry_count ASC, perform_at ASC, id ASC LIMIT :limit;

-- name: job_rows
SELECT json_array(j.id, j.key, j.shard, j.kind, coalesce(j.payload, ''), json(quote(j.score)), json(quote(j.perform_at)),
                  j.retry_count, j.attempt, j.deaths, j.priority, j.error, NULL, j.worker IS NOT NULL,
                  (SELECT name FROM workers w WHERE w.id = j.worker), quote(j.next_at))
  FROM json_each(:ids) i CROSS JOIN jobs j ON j.id = i.value ORDER BY i.key;

-- name: dead_rows
SELECT json_array(m.id, m.key, m.shard, m.kind, coalesce(m.payload, ''), json(quote(m.score)), json(quote(m.perform_at)),
                  m.retry_count, m.attempt, m.deaths, m.priority, m.error, json(quote(m.updated_at)), 0, NULL, 'NULL')
  FROM json_each(:ids) i CROSS JOIN morgue m ON m.id = i.value ORDER BY i.key;
