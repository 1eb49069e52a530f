-- Pages of jobs. Each statement gives the ids after a position, with what they are sorted by. `ASC` and `>` are turned
-- round for a listing in reverse. :due_after leaves out what is due by then.

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
