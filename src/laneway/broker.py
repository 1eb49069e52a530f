"""The broker contract: the verbs that every broker implements. The implementations are in `brokers/`.

Each verb is one transaction: all of it happens or none of it. Every verb may be repeated after its answer was lost.
`now` is the broker's own clock. The core decides, and the broker stores the decision. `laneway.testing.conformance`
tests any broker against this contract, third-party brokers too. Features that only some brokers have are in
`capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from .events.event import Subscription
from .jobs.data import Claim, JobView, NewJob, QueueStats, StartedRun, Status, WorkerView
from .jobs.settlement import Settlement

MAX_BODY = 1_048_576

#: Which jobs a listing shows; `delayed` and `retries` are parts of `queued`.
Listing = Literal["queued", "delayed", "retries", "running", "dead"]
#: What a listing is sorted by. Ties: by due time (dead: burial), then arrival. `updated_at` is for dead jobs alone,
#: `perform_at` and `retry_count` are for all others; dead and running jobs have no order by `retry_count`.
Order = Literal["perform_at", "key", "retry_count", "updated_at"]

#: A key in bytes at most.
MAX_KEY = 512


class Turn(msgspec.Struct):
    """Settle what is finished and claim what is next, in one step.

    `seq` grows by one with every turn of a worker on a queue; the same number again gets the same answer.
    """

    worker: str
    queue: str
    seq: int
    settlements: Sequence[Settlement] = ()
    #: How many jobs are wanted; 0 only settles.
    limit: int = 0
    #: The shards to claim from; None means all.
    shards: Sequence[int] | None = None
    #: Jobs are taken so many at a time from one shard: the one with the most overdue job first or, with `in_order`,
    #: the next in the order of `shards`, round and round. (Priorities come before either.)
    batch: int = 1
    in_order: bool = False
    #: The payloads of a key in one claim; None: 100 calls of a keyed job, 1,000 payloads of a collecting one.
    max_payloads: int | None = None
    #: The queue's epoch for which `shards` was chosen; in another one the turn settles and claims nothing. 0: any.
    epoch: int = 0
    #: Called by a remote broker, once or more, before it waits: when the turn is on its way, or cannot be sent at once.
    #: The worker hands its runners their work then, and not while it makes the turn.
    on_sent: Callable[[], None] = lambda: None


class Answer(msgspec.Struct):
    """What a turn brought: claims, and the settlements that came too late.

    Claims are in the order in which they were taken: highest priority first, then by due time; with a batch or in
    order of shards, those taken together from one shard stand together.
    """

    claims: list[Claim]
    #: The token of all claims of this turn.
    token: int = 0
    #: Keys whose settlement was refused, because the claim belongs to somebody else by now.
    refused: list[str] = []
    #: The queue's epoch and shard count now.
    epoch: int = 1
    shards: int = 1
    #: The shard count that the queue is being changed to; 0 when it is not. Until then nothing is claimed.
    resharding: int = 0
    #: Keys that were to be buried, and that the broker has no morgue for now: they stay, and are tried again.
    stayed: list[str] = []


class Page(msgspec.Struct):
    """A part of a listing; `after` is what to ask for next, None at the end."""

    jobs: list[JobView]
    after: str | None = None


class ReshardProgress(msgspec.Struct):
    """How far a queue's change of its shard count has come."""

    total: int
    moved: int
    #: Claims that must be settled, or taken back, before it can be finished.
    running: int
    done: bool


@runtime_checkable
class Broker(Protocol):
    """Where jobs are kept."""

    #: The largest body in bytes that it stores.
    max_body: int
    #: Whether other processes that open the same URL see the same jobs.
    shared: bool
    #: Whether others may reach it while this process cannot, and so take over what it runs: a supervisor that is cut
    #: off ends its children before that. Without this attribute, as in strangers' brokers, it is False.
    remote: bool

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        """Make a queue if it does not exist. Returns its shard count: the stored one is the truth."""
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Store all jobs, or none. Queues that nobody has declared are made.

        A plain key that is queued or running already is not stored twice. Keyed and collecting jobs merge with the
        one of their key: payloads are united, equal ones (by identity) keep the smaller score, and while the key is
        being run they are set aside. Raises EnqueueError for what cannot be stored.
        """
        ...

    # -- events ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> bool:
        """Have a queue get a copy of whatever is published to a topic, from now on. False: it was so already.

        A queue has one subscription to a topic: another filter takes the place of the one before, and returns True.
        """
        ...

    def unsubscribe(self, topic: str, queue: str) -> bool:
        """End a subscription; what is in the queue stays. False: there was none."""
        ...

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """Those of a topic, or all, by topic and queue."""
        ...

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        """Make a worker known. Ids are never used twice: joining again under one tells which shards it serves now,
        and changes nothing else."""
        ...

    def turn(self, turn: Turn) -> Answer:
        """Settle and claim. Raises LeaseLost when the worker was declared dead or is not known."""
        ...

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Return those queues that have a job due now, as soon as there is one; at the latest in `timeout_s`.

        A queue that is being resharded counts as one: whoever serves it is to take a turn, be told, and help. One that
        is paused does not, unless it is being resharded as well.
        """
        ...

    def nudge(self) -> None:
        """End every `wait` of this process now."""
        ...

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Count up the worker's lease, and give back its claims older than `before` whose token is not in `held`.

        Raises LeaseLost when the worker was declared dead or is not known.
        """
        ...

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        """Forget a worker and give back whatever it still holds. Returns how many claims that were.

        A death is counted for each of `died` that it holds: of a keyed job at the call that is named, whether or not it
        is the first. Nothing else of them changes. A worker that was declared dead is left to `reclaim`.
        """
        ...

    def leases(self) -> dict[str, tuple[int, float]]:
        """For every living worker: its renewal counter, and the length of its lease in seconds."""
        ...

    def declare_dead(self, worker: str, counter: int) -> bool:
        """End a lease for ever, unless it was renewed since `counter`. Gives nothing back by itself."""
        ...

    def reclaim(self) -> int:
        """Give back the claims of the dead, as they were before. Returns how many."""
        ...

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        """Every queue and its shard count."""
        ...

    def stats(self) -> list[QueueStats]:
        """Every queue in numbers, by name."""
        ...

    def lags(self, queue: str) -> dict[int, float]:
        """The shards that have something due, each with the seconds by which its most overdue job is late."""
        ...

    def workers(self) -> list[WorkerView]:
        """Every worker, the dead ones of the last hour included."""
        ...

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        """Where a job is; with `identity`, where one payload of it is."""
        ...

    def find(self, queue: str, key: str) -> list[JobView]:
        """A key's job that runs, the one in the queue or set aside, and the one in the morgue: whichever there are."""
        ...

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of jobs, by due time (dead ones: by the time of their burial) unless `order` says otherwise.

        `start` is the value of `order` to begin with, itself included; `after` goes on from a page before. What is set
        aside is not listed: its key is among the running ones.
        """
        ...

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        """Remove a queued job with all its payloads or, with `identity`, one of them; what is set aside counts as
        queued. False for what is running or gone."""
        ...

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        """Move a queued job to another time. False for what is running or gone.

        A keyed job rests until then, and calls that were due later are due then. With `identity` one call of a
        keyed job is moved; a collecting job is moved as a whole in any case. While its key is being run, what is set
        aside is moved only by the identity of a payload.
        """
        ...

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        """Have queued jobs be due now, retries included, as `reschedule` does. Returns how many.

        All calls of a keyed job are due then; one that failed stays first. A job that is due already counts, and keeps
        its place.
        """
        ...

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Move queued jobs that have failed to the morgue, without waiting for their retries. Returns how many.

        Of a keyed job, the call that failed; of a collecting one, all its payloads. Others are left alone.
        """
        ...

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Remove for good what `bury_failed` would bury. Returns how many."""
        ...

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        """Move jobs from the morgue back into the queue, due now, with all their retries. Returns how many.

        They merge with what is queued, and are set aside while their key is being run; a plain job, which cannot
        be, stays in the morgue then.
        """
        ...

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        """Remove jobs from the morgue for good. Returns how many."""
        ...

    def pause(self, queue: str) -> bool:
        """Have nothing more of a queue be claimed, until `resume`. False: it was paused already, or does not exist.

        What runs is settled, and enqueueing goes on.
        """
        ...

    def resume(self, queue: str) -> bool:
        """Undo `pause`, and wake those who wait. False: it was not paused, or does not exist."""
        ...

    # -- shards ----------------------------------------------------------------------------------------

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        """Take the next step of changing a queue's shard count, moving `limit` jobs at most; the first begins it.

        From the first step to the last nothing is claimed; enqueueing goes on, into the new shards. It is done when
        all has moved and nothing runs; the epoch then grows. Anybody may take any step, so a crash delays it only.
        Raises ConfigError while the queue is being changed to another count.
        """
        ...

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is unwell, a sentence each; nothing when all is."""
        ...

    def repair(self) -> list[str]:
        """Mend what can be mended of that. Returns what was done, a sentence each."""
        ...

    def close(self) -> None:
        """Let go of files and connections. The broker opens itself again when it is used."""
        ...
