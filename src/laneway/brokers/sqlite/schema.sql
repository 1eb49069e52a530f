-- The schema of the SQLite broker, one block a version. A file is brought up to date in one transaction; a block
-- that has been released is never changed, a new one is added below it.
--
-- States of a job: queued (jobs.worker IS NULL) · running (jobs.worker set) · dead (a row of morgue).

-- name: version_1

CREATE TABLE meta (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    token INTEGER NOT NULL                      -- the last token handed out; it only grows
);
INSERT INTO meta (id, token) VALUES (1, 0);

CREATE TABLE queues (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    shards     INTEGER NOT NULL,
    epoch      INTEGER NOT NULL DEFAULT 1,      -- grows when the shard count is changed
    paused     INTEGER NOT NULL DEFAULT 0,
    priorities TEXT    NOT NULL DEFAULT '[0]',  -- every priority that was ever used, highest first
    processed  INTEGER NOT NULL DEFAULT 0,
    failed     INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE workers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL UNIQUE,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    queues      TEXT    NOT NULL,
    concurrency INTEGER NOT NULL,
    lease_s     REAL    NOT NULL,
    counter     INTEGER NOT NULL DEFAULT 0,     -- the lease: it lives while this grows
    started_at  REAL    NOT NULL,
    seen_at     REAL    NOT NULL,
    dead        INTEGER NOT NULL DEFAULT 0
);

-- The last turn of each worker on each queue, so that its repeat gets the same answer.
CREATE TABLE turns (
    worker  INTEGER NOT NULL,
    queue   INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    token   INTEGER NOT NULL,
    refused TEXT    NOT NULL,
    PRIMARY KEY (worker, queue)
) WITHOUT ROWID;

-- A plain job's only payload lies in its row. The payloads of keyed and collecting jobs lie in `payloads`, and
-- `payload` is NULL.
CREATE TABLE jobs (
    id          INTEGER PRIMARY KEY,
    queue       INTEGER NOT NULL,
    shard       INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    payload     TEXT,
    score       REAL    NOT NULL DEFAULT 0,
    perform_at  REAL    NOT NULL,               -- when it is due, not_before included
    not_before  REAL,                           -- set by a failure
    retry_count INTEGER NOT NULL DEFAULT -1,
    priority    INTEGER NOT NULL DEFAULT 0,
    expires     REAL,
    attempt     INTEGER NOT NULL DEFAULT 0,
    deaths      INTEGER NOT NULL DEFAULT 0,
    error       TEXT,
    headers     TEXT,
    worker      INTEGER,                        -- who runs it; NULL while it is queued
    token       INTEGER                         -- of the claim that runs it
);
CREATE UNIQUE INDEX jobs_key ON jobs (queue, key);
CREATE INDEX jobs_due ON jobs (queue, shard, priority, perform_at) WHERE worker IS NULL;
CREATE INDEX jobs_claimed ON jobs (worker, token) WHERE worker IS NOT NULL;
CREATE INDEX jobs_retries ON jobs (queue, perform_at) WHERE retry_count >= 0 AND worker IS NULL;

CREATE TABLE payloads (
    queue      INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    place      INTEGER NOT NULL,                -- 0 queued · 1 running · 2 set aside · 3 dead
    score      REAL    NOT NULL,
    seq        INTEGER NOT NULL,                -- arrival
    payload    TEXT    NOT NULL,
    call       TEXT,                            -- a keyed call's own id
    perform_at REAL,                            -- a keyed call's own due time
    expires    REAL,
    attempt    INTEGER NOT NULL DEFAULT 0,
    headers    TEXT,
    PRIMARY KEY (queue, key, place, score, seq, payload)
) WITHOUT ROWID;

CREATE TABLE morgue (
    id          INTEGER PRIMARY KEY,
    queue       INTEGER NOT NULL,
    shard       INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    payload     TEXT,
    score       REAL    NOT NULL DEFAULT 0,
    perform_at  REAL    NOT NULL,
    retry_count INTEGER NOT NULL,
    priority    INTEGER NOT NULL DEFAULT 0,
    expires     REAL,
    attempt     INTEGER NOT NULL,
    deaths      INTEGER NOT NULL,
    error       TEXT,
    headers     TEXT,
    updated_at  REAL    NOT NULL
);
CREATE UNIQUE INDEX morgue_key ON morgue (queue, key);
CREATE INDEX morgue_updated_at ON morgue (queue, updated_at, id);

-- Ids that a job may ask for after it is gone from everywhere else.
CREATE TABLE endings (
    queue    INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    status   TEXT    NOT NULL,
    ended_at REAL    NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;
CREATE INDEX endings_ended_at ON endings (ended_at);

-- name: version_2

-- Keyed and collecting jobs. Their payloads lie in `payloads`, in three places; those of a dead one belong to its row
-- in `morgue`, all others to its row in `jobs`. What is set aside while a key is being run is queued.
DROP TABLE payloads;
CREATE TABLE payloads (
    id         INTEGER PRIMARY KEY,             -- arrival
    job        INTEGER NOT NULL,
    place      INTEGER NOT NULL,                -- 0 queued · 1 running · 2 dead
    score      REAL    NOT NULL,                -- the order; a keyed call's due time, or HEAD after a failure
    identity   TEXT    NOT NULL,                -- what makes it the same payload
    payload    TEXT    NOT NULL,
    perform_at REAL    NOT NULL,                -- a keyed call's own due time
    attempt    INTEGER NOT NULL DEFAULT 0,
    headers    TEXT
);
CREATE UNIQUE INDEX payloads_identity ON payloads (job, place, identity);
CREATE INDEX payloads_order ON payloads (job, place, score);

ALTER TABLE jobs ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;     -- 0 plain · 1 keyed · 2 collecting
ALTER TABLE jobs ADD COLUMN next_at REAL;                        -- running, and more waits: when that is due
ALTER TABLE jobs ADD COLUMN since REAL;                          -- waits for quiet since then
ALTER TABLE jobs ADD COLUMN latest REAL;                         -- due time of the last call that was given none
CREATE INDEX jobs_retry_count ON jobs (queue, retry_count, perform_at) WHERE retry_count >= 0 AND worker IS NULL;
ALTER TABLE morgue ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN shards TEXT NOT NULL DEFAULT '{}';

-- A queue whose shard count is being changed: to what, and how far it has come. `phase` 0: jobs are moved, 1: the
-- morgue, 2: all has moved; `place` is the last key that was.
ALTER TABLE queues ADD COLUMN target INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN phase INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN place TEXT NOT NULL DEFAULT '';
ALTER TABLE queues ADD COLUMN total INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN moved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;    -- grows whenever any queue's shards change

DROP TABLE endings;
CREATE TABLE endings (
    queue    INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    identity TEXT    NOT NULL DEFAULT '',       -- of one payload; '' for a whole job
    status   TEXT    NOT NULL,
    ended_at REAL    NOT NULL,
    PRIMARY KEY (queue, key, identity)
) WITHOUT ROWID;
CREATE INDEX endings_ended_at ON endings (ended_at);

-- name: version_3

-- How often the process that ran a keyed call has died; plain and collecting jobs count in their own row.
ALTER TABLE payloads ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;

-- name: version_4

-- Which queues get a copy of what is published to a topic. The queue need not exist yet: its first copy makes it.
CREATE TABLE subscriptions (
    topic  TEXT NOT NULL,
    queue  TEXT NOT NULL,
    filter TEXT,                                -- what it wants of an event's attributes, as JSON; NULL: every event
    PRIMARY KEY (topic, queue)
) WITHOUT ROWID;
