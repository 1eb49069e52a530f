"""What an app needs on AWS, by its tasks and listeners: which queues, of which kind, for how many runs of a job, and
which subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....config import DEFAULT_QUEUE
from ....events.event import Subscription
from ....jobs.data import Kind

if TYPE_CHECKING:
    from ....app import Laneway


class Need(msgspec.Struct):
    """What the tasks of one queue need, or its listener."""

    queue: str
    #: Names of tasks whose jobs are plain, and of those whose calls have keys.
    plain: list[str] = []
    keyed: list[str] = []
    #: Names of tasks that SQS cannot serve.
    collecting: list[str] = []
    #: How often a job of the most patient of them is run, all retries included: plain and keyed.
    runs: dict[bool, int] = {}
    #: If it is the queue of a listener: what that hears.
    subscription: Subscription | None = None

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Which SQS queues are made for it: the standard one, and the FIFO one unless only events come."""
        return (False,) if self.subscription is not None else (False, True)

    def tasks(self, fifo: bool) -> list[str]:
        """The tasks that need the queue's FIFO queue, or its standard one."""
        return self.keyed if fifo else self.plain


def needs_of(app: Laneway) -> dict[str, Need]:
    """The queues of an app's tasks and listeners, in the order of their declaration."""
    found: dict[str, Need] = {}
    for task in app.registry:
        queue = task.options.queue or DEFAULT_QUEUE
        need = found.setdefault(queue, Need(queue))
        if task.kind is Kind.COLLECTING:
            need.collecting.append(task.name)
            continue
        fifo = task.kind is Kind.KEYED
        need.tasks(fifo).append(task.name)
        runs = task.options.retries(task.kind) + 1
        need.runs[fifo] = max(runs, need.runs.get(fifo, 0))
    for listener in app.registry.listeners.values():
        found[listener.queue].subscription = listener.subscription
    return found
