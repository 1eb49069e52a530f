"""The broker contract: what a place for jobs must be able to do. Implementations are in `brokers/`.

Each verb is one transaction: all of it happens or none of it. Every verb may be repeated after its answer was
lost. `now` is the broker's own clock. A broker stores; what is to be stored has been decided before.
Any broker, also a stranger's, can be held against `laneway.testing.conformance`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from .job import Claim, JobView, NewJob, QueueStats, Status, WorkerView
from .outcome import Settlement

MAX_BODY = 1_048_576

#: Which jobs a listing shows; `delayed` and `retries` are parts of `queued`.
Listing = Literal["queued", "delayed", "retries", "running", "dead"]


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


class Answer(msgspec.Struct):
    """What a turn brought: claims, highest priority first, then by due time; and the settlements that came too late."""

    claims: list[Claim]
    #: The token of all claims of this turn.
    token: int = 0
    #: Keys whose settlement was refused, because the claim belongs to somebody else by now.
    refused: list[str] = []


class Page(msgspec.Struct):
    """A part of a listing; `after` is what to ask for next, None at the end."""

    jobs: list[JobView]
    after: str | None = None


@runtime_checkable
class Broker(Protocol):
    """Where jobs are kept."""

    #: The largest body in bytes that it stores.
    max_body: int

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        """Make a queue if it does not exist. Returns its shard count: the stored one is the truth."""
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Store all jobs, or none. A key that is queued or running already is not stored twice.

        Queues that nobody has declared are made. Raises EnqueueError for what cannot be stored.
        """
        ...

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        """Make a worker known. Ids are never used twice: joining again under one changes nothing."""
        ...

    def turn(self, turn: Turn) -> Answer:
        """Settle and claim. Raises LeaseLost when the worker was declared dead or is not known."""
        ...

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Return those queues that have a job due now, as soon as there is one; at the latest in `timeout_s`."""
        ...

    def nudge(self) -> None:
        """End every `wait` of this process now."""
        ...

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Count up the worker's lease, and give back its claims older than `before` whose token is not in `held`.

        Raises LeaseLost when the worker was declared dead or is not known.
        """
        ...

    def leave(self, worker: str) -> int:
        """Forget a worker and give back whatever it still holds. Returns how many claims that were."""
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

    def workers(self) -> list[WorkerView]:
        """Every worker, the dead ones of the last hour included."""
        ...

    def status(self, queue: str, key: str) -> Status:
        """Where a job is."""
        ...

    def find(self, queue: str, key: str) -> list[JobView]:
        """A key's job in the queue and in the morgue, whichever there are."""
        ...

    def listing(self, queue: str, which: Listing, *, after: str | None = None, limit: int = 100) -> Page:
        """A page of jobs by due time, then arrival; of dead ones by the time of their burial."""
        ...

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str) -> bool:
        """Remove a queued job. False for what is running or gone."""
        ...

    def reschedule(self, queue: str, key: str, *, delay_s: float = 0.0, perform_at: float | None = None) -> bool:
        """Move a queued job to another time. False for what is running or gone."""
        ...

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        """Move jobs from the morgue back into the queue, due now, with all their retries. Returns how many.

        A job whose key is being run stays in the morgue.
        """
        ...

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        """Remove jobs from the morgue for good. Returns how many."""
        ...

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What is unwell, a sentence each; nothing when all is."""
        ...

    def close(self) -> None:
        """Let go of files and connections. The broker opens itself again when it is used."""
        ...
