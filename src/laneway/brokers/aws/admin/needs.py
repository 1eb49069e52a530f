"""QueueRequirement: what the tasks and the listener of a queue need on AWS. Calls nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....config import DEFAULT_QUEUE
from ....events.event import Subscription
from ....jobs.data import Kind

if TYPE_CHECKING:
    from ....app import Laneway


class QueueRequirement(msgspec.Struct):
    """The needs of one queue's tasks, or of its listener."""

    queue: str
    #: The names of the tasks with plain jobs, and of the tasks whose calls have keys.
    plain: list[str] = []
    keyed: list[str] = []
    #: The most runs of a job, all retries included, among the keyed (True) and the plain tasks (False).
    runs: dict[bool, int] = {}
    #: The subscription of the listener, if it is a listener's queue.
    subscription: Subscription | None = None

    @property
    def kinds(self) -> tuple[bool, ...]:
        """The SQS queues to create, by `fifo`: a standard and a FIFO queue. Events need only the standard queue."""
        return (False,) if self.subscription is not None else (False, True)

    def tasks(self, fifo: bool) -> list[str]:
        """The tasks that need the queue's FIFO queue, or its standard one."""
        return self.keyed if fifo else self.plain


def needs_of(app: Laneway) -> dict[str, QueueRequirement]:
    """The queues of an app's tasks and listeners, in the order of their declaration.

    The app is on SQS, so none of its tasks is a collecting one.
    """
    found: dict[str, QueueRequirement] = {}
    for task in app.registry:
        queue = task.options.queue or DEFAULT_QUEUE
        need = found.setdefault(queue, QueueRequirement(queue))
        fifo = task.kind is Kind.KEYED
        need.tasks(fifo).append(task.name)
        runs = task.options.retries(task.kind) + 1
        need.runs[fifo] = max(runs, need.runs.get(fifo, 0))
    for listener in app.registry.listeners.values():
        found[listener.queue].subscription = listener.subscription
    return found
