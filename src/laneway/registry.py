"""The tasks of an app, by name. What is not in here cannot be run, whatever a ticket says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .config import DEFAULT_QUEUE
from .errors import DeclarationError

if TYPE_CHECKING:
    from .collecting import Collecting
    from .task import AnyTask, TicketTask


class Registry:
    """Tasks by name, by alias, for class tasks by class and for collecting tasks by queue."""

    def __init__(self) -> None:
        self._by_name: dict[str, AnyTask] = {}
        self._by_ticket: dict[str, TicketTask] = {}
        self._by_class: dict[type, TicketTask] = {}
        #: The collecting tasks, by the queues that are theirs alone.
        self.collectors: dict[str, Collecting[Any]] = {}

    def add(self, task: TicketTask) -> None:
        """Register a task under its name and aliases; each may be taken once only."""
        names = (task.name, *task.options.aliases)
        self._see_free(names)
        queue = task.options.queue or DEFAULT_QUEUE
        if other := self.collectors.get(queue):
            raise DeclarationError(
                f"Task {task.name}: the queue {queue} belongs to the collecting task {other.name} alone; give one of "
                "them another with queue=…."
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
        self._see_free((task.name,))
        for other in self:
            if (other.options.queue or DEFAULT_QUEUE) == task.queue:
                raise DeclarationError(
                    f"Task {task.name}: a collecting task has its queue alone, and the queue {task.queue} is that of "
                    f"{other.name} too; give one of them another with queue=…."
                )
        self._by_name[task.name] = self.collectors[task.queue] = task

    def _see_free(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._by_name:
                raise DeclarationError(
                    f"Two tasks are named {name!r}; give one of them another name with @app.task(name=…)."
                )

    def find(self, name: str) -> TicketTask | None:
        """The task that a ticket means by this name or alias; a collecting task is never meant."""
        return self._by_ticket.get(name)

    def of(self, kind: type) -> TicketTask | None:
        """The task that this very class is; a subclass of a task is not one."""
        return self._by_class.get(kind)

    def collector_of(self, queue: str) -> Collecting[Any] | None:
        """The collecting task that this queue belongs to."""
        return self.collectors.get(queue)

    def is_collecting(self, name: str) -> bool:
        """Whether a collecting task has this name."""
        return name in self._by_name and name not in self._by_ticket

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(dict.fromkeys(self._by_name.values()))

    def __len__(self) -> int:
        return len(set(map(id, self._by_name.values())))
