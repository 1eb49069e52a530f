"""NewJob, Claim, JobView and the other values that brokers exchange with the core.

A NewJob is on its way in, a Claim is handed to a worker, and a JobView is shown to an operator. All are plain data.
There are three kinds of job and one model: a key, and payloads in order. The key of a plain task's job is its own
id.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from ..events.event import Attributes

Status = Literal["delayed", "queued", "running", "dead", "cancelled", "done", "gone"]

Headers = dict[str, str]


class Kind(IntEnum):
    """What a job's key and payloads are."""

    #: The key is the job's own id, and its one payload a ticket.
    PLAIN = 0
    #: The key is the caller's; its payloads are tickets, run one by one by due time, then arrival.
    KEYED = 1
    #: The key is the caller's; its payloads are values, gathered and handed over together by score.
    COLLECTING = 2


class Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One payload of a job."""

    body: str
    #: What orders the payloads of a key: a collecting payload's score, a keyed call's due time.
    score: float = 0.0
    #: What makes it the same payload: a keyed call's own id, a digest of a collecting one; none for a plain job.
    identity: str = ""
    #: How often a keyed call has been handed out; a plain or collecting job counts in its claim.
    attempt: int = 0
    #: The headers of a keyed call; those of a plain job are in its claim.
    headers: Headers | None = None
    #: How often the process that ran a keyed call has died; a plain or collecting job counts in its claim.
    deaths: int = 0


class Debounce(msgspec.Struct, frozen=True):
    """How a collecting job waits for more before it is due; it matters while nothing of it has failed."""

    #: Seconds without another payload. Every payload restarts them.
    grace_s: float
    #: No longer than this after the first payload.
    max_wait_s: float | None = None
    #: Due at once when so many payloads have gathered.
    max_size: int | None = None


class Hints(msgspec.Struct, frozen=True):
    """What SQS alone makes use of. Other brokers do not read it."""

    #: The tenant, for SQS fair queues: one busy tenant does not delay the jobs of the rest.
    group: str = ""
    #: It must be possible to cancel the job: on SQS that keeps even a short delay in the table.
    cancellable: bool = False


class EventCopy(msgspec.Struct, frozen=True):
    """Says that the body of a job is the value of an event, and no ticket. It is not stored."""

    #: The id of the event. Copies of one event are stored together: all or none. Where a broker cannot do that in one
    #: step, a crash may store one of them again, and loses none. Empty: the value was sent to one queue.
    id: str = ""
    #: The topic that the event was published to.
    topic: str = ""
    #: The job's queue is the name of the topic: the broker makes the copies itself (`Capabilities.relays`).
    to_topic: bool = False
    #: What was published beside the event, for the filters of a broker that makes the copies. Other brokers find it in
    #: the headers.
    attributes: Attributes | None = None


class NewJob(msgspec.Struct, kw_only=True):
    """A job to be stored, or one more payload for it. `delay_s` counts from the broker's now; `perform_at` is stored
    as given."""

    queue: str
    key: str
    body: str
    kind: Kind = Kind.PLAIN
    #: For keyed and collecting jobs: what makes it the same payload (see Payload).
    identity: str = ""
    #: Of a collecting payload; None gives it one larger than any that its key has.
    score: float | None = None
    delay_s: float = 0.0
    perform_at: float | None = None
    #: Only for a collecting job that was given neither delay nor time.
    quiet: Debounce | None = None
    priority: int = 0
    expires: float | None = None
    headers: Headers | None = None
    hints: Hints | None = None
    #: Of the value of an event.
    event: EventCopy | None = None

    @property
    def timed(self) -> bool:
        """Whether it was given a time; otherwise it is due when it arrives."""
        return self.perform_at is not None or self.delay_s > 0

    @property
    def event_id(self) -> str:
        """The event that it is a copy of; empty: none."""
        return "" if self.event is None else self.event.id

    @property
    def to_topic(self) -> bool:
        """Whether its queue is a topic; see `EventCopy`."""
        return self.event is not None and self.event.to_topic


class Claim(msgspec.Struct, array_like=True, gc=False):
    """A job handed to a worker. No other worker gets its key until it is settled or its lease has ended."""

    queue: str
    #: The broker's own handle for the job. Only the broker reads it.
    ref: int
    key: str
    #: Grows with every claim; settling with an old one is refused. The handler sees it as `context.fence`.
    token: int
    perform_at: float
    #: Of the first payload; those behind it have not failed.
    retry_count: int
    #: How often the job has been handed out, this time included; giving it back unstarted does not count.
    attempt: int
    #: How often the process died that was running it; of a keyed job each call has its own count.
    deaths: int
    #: Those that are to be run now, in order. A key may have more: not due yet, or too many for one claim.
    payloads: list[Payload]
    error: str | None = None
    headers: Headers | None = None
    kind: Kind = Kind.PLAIN
    shard: int = 0
    priority: int = 0
    #: The worker id that claimed it, set by the fetcher. After the worker has joined under a new id, another worker may
    #: hold the job.
    worker: str = ""


class StartedRun(msgspec.Struct, array_like=True, frozen=True):
    """A run that has begun, as the supervisor of its process knows it. When the process dies, this run is to blame."""

    queue: str
    key: str
    token: int
    #: A keyed call's own id. Empty for plain and collecting jobs, which their key identifies.
    identity: str = ""


class JobView(msgspec.Struct, kw_only=True):
    """A job as it stands in its queue or in the morgue.

    What is set aside while its key is being run is a job in the queue, beside the one that runs.
    """

    queue: str
    key: str
    status: Status
    shard: int
    #: The first of its payloads, in order; `size` says how many there are.
    payloads: list[Payload]
    perform_at: float
    retry_count: int
    #: How often it was handed out. Each call of a keyed job has its own count. In the morgue this is the count of the
    #: call that was buried last, whose error is shown; of a job that waits for its retry, of the call that failed.
    attempt: int
    kind: Kind = Kind.PLAIN
    size: int = 1
    deaths: int = 0
    priority: int = 0
    error: str | None = None
    #: When it was buried, for a job in the morgue.
    updated_at: float | None = None
    #: The id of the worker that runs it.
    worker: str | None = None


class QueueStats(msgspec.Struct, kw_only=True):
    """A queue in numbers, counted in keys. `length` is what is queued: delayed and set aside too, but not what runs."""

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
    #: Whether an operator has paused the queue.
    paused: bool = False


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
    #: The shards that it serves, for those queues of which it does not serve all.
    shards: dict[str, list[int]] = {}
