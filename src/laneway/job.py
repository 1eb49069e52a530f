"""What a job is: on its way in (NewJob), handed to a worker (Claim), and as somebody sees it (JobView).

Plain data, shared by the core and every broker. A plain task's job is a job whose key is its own id.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["delayed", "queued", "running", "dead", "cancelled", "done", "gone"]

Headers = dict[str, str]


class Payload(msgspec.Struct, array_like=True, frozen=True):
    """One payload of a job."""

    body: str
    score: float = 0.0


class NewJob(msgspec.Struct, kw_only=True):
    """A job to be stored. `delay_s` counts from the broker's now; `perform_at` is stored as given."""

    queue: str
    key: str
    body: str
    score: float | None = None
    delay_s: float = 0.0
    perform_at: float | None = None
    priority: int = 0
    expires: float | None = None
    headers: Headers | None = None


class Claim(msgspec.Struct, array_like=True):
    """A job handed to a worker: nobody else gets its key until it is settled or its lease has ended."""

    queue: str
    #: The broker's own handle for the job; nobody else looks at it.
    ref: int
    key: str
    #: Grows with every claim; settling with an old one is refused. The handler sees it as `context.fence`.
    token: int
    perform_at: float
    retry_count: int
    #: How often the job has been handed out, this time included; giving it back unstarted does not count.
    attempt: int
    deaths: int
    payloads: list[Payload]
    error: str | None = None
    headers: Headers | None = None


class JobView(msgspec.Struct, kw_only=True):
    """A job as it stands in its queue or in the morgue."""

    queue: str
    key: str
    status: Status
    shard: int
    payloads: list[Payload]
    perform_at: float
    retry_count: int
    attempt: int
    deaths: int = 0
    priority: int = 0
    error: str | None = None
    #: When it was buried, for a job in the morgue.
    updated_at: float | None = None
    #: The id of the worker that runs it.
    worker: str | None = None


class QueueStats(msgspec.Struct, kw_only=True):
    """A queue in numbers. `length` is what is queued, delayed included, being run not."""

    queue: str
    shards: int
    length: int = 0
    delayed: int = 0
    fresh: int = 0
    retries: int = 0
    dead: int = 0
    busy: int = 0
    processed: int = 0
    failed: int = 0
    #: Seconds by which the most overdue job is late.
    lag: float = 0.0


class WorkerView(msgspec.Struct, kw_only=True):
    """A worker as the broker knows it."""

    id: str
    host: str
    pid: int
    queues: list[str]
    concurrency: int
    lease_s: float
    started_at: float
    seen_at: float
    dead: bool = False
    busy: int = 0
