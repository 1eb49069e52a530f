"""Registry: an app's tasks by name, collecting tasks and listeners by queue.

A task that is not registered cannot run, whatever a ticket says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..config import DEFAULT_QUEUE
from ..errors import DeclarationError
from ..jobs.data import Kind

if TYPE_CHECKING:
    from .collecting import Collecting
    from .listener import Listener
    from .task import AnyTask, TicketTask


class Registry:
    """Tasks by name, by alias, for class tasks by class; collecting tasks and listeners by queue."""

    def __init__(self) -> None:
        self._by_name: dict[str, AnyTask] = {}
        self._by_ticket: dict[str, TicketTask] = {}
        self._by_class: dict[type, TicketTask] = {}
        #: The collecting tasks, by the queues that are theirs alone.
        self.collectors: dict[str, Collecting[Any]] = {}
        #: The listeners, likewise.
        self.listeners: dict[str, Listener[Any]] = {}

    def add(self, task: TicketTask) -> None:
        """Register a task under its name and aliases; each may be taken once only."""
        names = (task.name, *task.options.aliases)
        self._ensure_free(names)
        queue = task.options.queue or DEFAULT_QUEUE
        if other := self.owner_of(queue):
            raise DeclarationError(
                f"Task {task.name}: the queue {queue} belongs to {owner(other)} alone; give the task another with "
                "queue=…."
            )
        if isinstance(task.target, type):
            if same := self._by_class.get(task.target):
                raise DeclarationError(
                    f"The class {task.target.__name__} is the task {same.name!r} already; give that one aliases."
                )
            self._by_class[task.target] = task
        for name in names:
            self._by_name[name] = self._by_ticket[name] = task

    def add_collecting(self, task: Collecting[Any]) -> None:
        """Register a collecting task under its name and its queue; both may be taken once only."""
        self._ensure_free((task.name,))
        for other in self:
            if (other.options.queue or DEFAULT_QUEUE) == task.queue:
                raise DeclarationError(
                    f"Task {task.name}: a collecting task has its queue alone, and the queue {task.queue} is that of "
                    f"{other.name} too; give one of them another with queue=…."
                )
        self._by_name[task.name] = self.collectors[task.queue] = task

    def add_listener(self, listener: Listener[Any]) -> None:
        """Register a listener under its name and its queue; both may be taken once only."""
        self._ensure_free((listener.name,))
        if same := self.listeners.get(listener.queue):
            raise DeclarationError(
                f"Listener {listener.name}: the queue {listener.queue} is that of the listener {same.name} already, "
                "and an event comes to it once; have one of them do both, or give one another destination=…."
            )
        for other in self:
            if (other.options.queue or DEFAULT_QUEUE) == listener.queue:
                raise DeclarationError(
                    f"Listener {listener.name}: a listener has its queue alone, and the queue {listener.queue} is that "
                    f"of {other.name} too; give that one another with queue=…, or the listener a destination=…."
                )
        self._by_name[listener.name] = self.listeners[listener.queue] = listener

    def _ensure_free(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._by_name:
                raise DeclarationError(f"Two tasks are named {name!r}; give one of them another name with name=….")

    def find(self, name: str) -> TicketTask | None:
        """The task that a ticket means by this name or alias; a collecting task or a listener is never meant."""
        return self._by_ticket.get(name)

    def of(self, kind: type) -> TicketTask | None:
        """The task that this very class is; a subclass of a task is not one."""
        return self._by_class.get(kind)

    def collector_of(self, queue: str) -> Collecting[Any] | None:
        """The collecting task that this queue belongs to."""
        return self.collectors.get(queue)

    def listener_of(self, queue: str) -> Listener[Any] | None:
        """The listener that this queue belongs to."""
        return self.listeners.get(queue)

    def owner_of(self, queue: str) -> Collecting[Any] | Listener[Any] | None:
        """Whoever has this queue alone."""
        return self.collectors.get(queue) or self.listeners.get(queue)

    def not_by_tickets(self, name: str) -> AnyTask | None:
        """The collecting task or the listener that has this name: no ticket can mean it."""
        return None if name in self._by_ticket else self._by_name.get(name)

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(dict.fromkeys(self._by_name.values()))

    def __len__(self) -> int:
        return len(set(map(id, self._by_name.values())))


def owner(task: Collecting[Any] | Listener[Any]) -> str:
    """What has a queue alone, in words."""
    return f"the {'collecting task' if task.kind is Kind.COLLECTING else 'listener'} {task.name}"
