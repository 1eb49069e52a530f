-- Reads jobs, queues and workers for status, find, stats and lags.

-- name: stats
SELECT q.name, q.shards, q.processed, q.failed, q.paused,
       count(j.id) FILTER (WHERE j.worker IS NULL OR j.next_at IS NOT NULL),
       count(j.id) FILTER (WHERE (j.worker IS NULL AND j.perform_at > :now) OR j.next_at > :now),
       count(j.id) FILTER (WHERE j.worker IS NULL AND j.retry_count >= 0),
       count(j.id) FILTER (WHERE j.worker IS NOT NULL),
       coalesce(min(j.perform_at) FILTER (WHERE j.worker IS NULL AND j.perform_at <= :now), :now),
       (SELECT count(*) FROM morgue m WHERE m.queue = q.id)
  FROM queues q LEFT JOIN jobs j ON j.queue = q.id
 GROUP BY q.id ORDER BY q.name;

-- name: dues
-- When the earliest queued job of each shard of :queue is due; NULL for one that has none. It reads shards and
-- priorities itself, because another process may have added some.
WITH RECURSIVE shard (number, shards) AS (
    SELECT 0, shards FROM queues WHERE id = :queue
    UNION ALL SELECT number + 1, shards FROM shard WHERE number + 1 < shards
)
SELECT shard.number, min((SELECT perform_at FROM jobs
                           WHERE queue = :queue AND shard = shard.number AND priority = p.value AND worker IS NULL
                           ORDER BY perform_at LIMIT 1))
  FROM queues q JOIN shard, json_each(q.priorities) p
 WHERE q.id = :queue
 GROUP BY shard.number ORDER BY shard.number;

-- name: workers
SELECT w.name, w.host, w.pid, w.queues, w.concurrency, w.lease_s, w.started_at, w.seen_at, w.dead, w.shards,
       (SELECT count(*) FROM jobs j WHERE j.worker = w.id)
  FROM workers w ORDER BY w.started_at, w.id;

-- name: payloads_in
-- The first :limit payloads of a row in a place, and how many there are.
SELECT json_group_array(json_array(payload, json(quote(score)), identity, attempt, json(headers), deaths)),
       (SELECT count(*) FROM payloads WHERE job = :job AND place = :place)
  FROM (SELECT payload, iif(score = -1.0e300, perform_at, score) AS score, identity, attempt, headers, deaths
          FROM payloads p
         WHERE job = :job AND place = :place
         ORDER BY p.score, iif(:kind = 2, payload, ''), id LIMIT :limit);

-- name: payload_at
-- Where a payload of a key is: its place, and when it and its job are due. One that runs and was set aside again is
-- set aside: that is the younger one.
SELECT p.place, p.score, j.perform_at, j.worker IS NOT NULL, j.next_at, j.kind
  FROM jobs j JOIN payloads p ON p.job = j.id AND p.identity = :identity AND p.place < 2
 WHERE j.queue = :queue AND j.key = :key ORDER BY p.place LIMIT 1;

-- name: payload_dead
SELECT 1 FROM morgue m JOIN payloads p ON p.job = m.id AND p.place = 2 AND p.identity = :identity
 WHERE m.queue = :queue AND m.key = :key;

-- name: ending
-- Of a payload, or of the whole job that it was of.
SELECT status FROM endings WHERE queue = :queue AND key = :key AND identity IN (:identity, '');

-- name: job_at
SELECT id, kind, worker IS NOT NULL, retry_count, perform_at, not_before, error
  FROM jobs WHERE queue = :queue AND key = :key;

-- name: key_of
SELECT queue, key FROM jobs WHERE id = :id;

-- name: dead_at
SELECT id, kind FROM morgue WHERE queue = :queue AND key = :key;

-- name: job_rows
SELECT json_array(j.id, j.key, j.shard, j.kind, coalesce(j.payload, ''), json(quote(j.score)), json(quote(j.perform_at)),
                  j.retry_count, j.attempt, j.deaths, j.priority, j.error, NULL, j.worker IS NOT NULL,
                  (SELECT name FROM workers w WHERE w.id = j.worker), quote(j.next_at))
  FROM json_each(:ids) i CROSS JOIN jobs j ON j.id = i.value ORDER BY i.key;

-- name: dead_rows
SELECT json_array(m.id, m.key, m.shard, m.kind, coalesce(m.payload, ''), json(quote(m.score)), json(quote(m.perform_at)),
                  m.retry_count, m.attempt, m.deaths, m.priority, m.error, json(quote(m.updated_at)), 0, NULL, 'NULL')
  FROM json_each(:ids) i CROSS JOIN morgue m ON m.id = i.value ORDER BY i.key;
