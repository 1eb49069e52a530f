"""One worker as the in-memory broker knows it: its lease, what it holds, and its last turns."""

from __future__ import annotations

import msgspec

from ...jobs.data import Claim, WorkerView
from .job import Job


class Worker(msgspec.Struct, eq=False):
    """A worker. It is known as long as its lease, and for an hour after its death."""

    view: WorkerView
    #: The lease: it lives while this grows.
    counter: int = 0
    #: What it holds, by the job's ref, in the order in which it was handed out.
    claims: dict[int, Job] = msgspec.field(default_factory=dict)
    #: Its last turn on each queue: seq, token and refused keys.
    turns: dict[str, tuple[int, int, list[str]]] = msgspec.field(default_factory=dict)

    def claimed(self, token: int) -> list[Claim]:
        """What it still holds under a token."""
        return [job.claim() for job in self.claims.values() if job.token == token]

    def shown(self) -> WorkerView:
        return msgspec.structs.replace(copy_of(self.view), busy=len(self.claims))


def copy_of(view: WorkerView) -> WorkerView:
    """A worker's view whose lists are its own."""
    shards = {queue: list(shards) for queue, shards in view.shards.items()}
    return msgspec.structs.replace(view, queues=list(view.queues), shards=shards)
