-- Stores plain jobs in one statement; merges keyed and collecting jobs with the stored job of their key.

-- name: enqueue
-- :jobs is [[queue, shard, key, payload, score, perform_at, priority, expires, headers], …]. Nothing → queued.
-- A key that is queued or running already stays as it is, so a repeat is harmless.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, headers)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
  FROM json_each(:jobs)
 WHERE true
    ON CONFLICT (queue, key) DO NOTHING;

-- name: enqueue_alone
-- The same for one job, as a transaction of its own. The last value is the epoch that the caller knows: if the shards
-- of any queue have changed since, nothing is stored.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, headers)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? FROM meta WHERE id = 1 AND epoch = ?
    ON CONFLICT (queue, key) DO NOTHING;

-- name: enqueue_one
-- The same for one job, whose texts SQLite's JSON would cut off at a NUL.
INSERT INTO jobs (queue, shard, key, payload, score, perform_at, priority, expires, headers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (queue, key) DO NOTHING;

-- name: key_states
-- The stored jobs of the keys :keys ([[queue, key], …]). Times are quoted, because JSON would round them; of
-- payloads :most at most are counted.
SELECT json_group_array(json_array(
           j.queue, j.key, j.id, j.kind, j.worker IS NOT NULL, quote(j.perform_at), quote(j.not_before),
           j.retry_count, quote(j.next_at), quote(j.since), quote(j.latest),
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
-- Nothing → queued, without payloads yet. :jobs is [[queue, shard, key, kind, perform_at, since, priority, latest], …].
INSERT INTO jobs (queue, shard, key, kind, perform_at, since, priority, latest)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
       json_extract(value, '$[6]'), json_extract(value, '$[7]')
  FROM json_each(:jobs);

-- name: move_jobs
-- :jobs is [[id, perform_at, next_at, since, latest], …]: when the queued or waiting part is due after more was added.
UPDATE jobs SET perform_at = json_extract(n.value, '$[1]'), next_at = json_extract(n.value, '$[2]'),
       since = json_extract(n.value, '$[3]'), latest = json_extract(n.value, '$[4]')
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

-- name: any_endings
SELECT EXISTS (SELECT 1 FROM endings);

-- name: forget_ending
-- A cancelled job that is enqueued again is not cancelled any more.
DELETE FROM endings WHERE queue = ? AND key = ? AND identity = ?;

-- name: add_payload
-- The same for one, whose text SQLite's JSON would cut off at a NUL.
INSERT INTO payloads (job, place, score, identity, payload, perform_at, headers)
SELECT id, 0, ?3, ?4, ?5, ?6, ?7 FROM jobs WHERE queue = ?1 AND key = ?2
    ON CONFLICT (job, place, identity) DO UPDATE SET score = min(score, excluded.score);
