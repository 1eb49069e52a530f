"""The tasks of an app, by name. What is not in here cannot be run, whatever a ticket says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import DeclarationError

if TYPE_CHECKING:
    from .task import AnyTask


class Registry:
    """Tasks by name, by alias and, for class tasks, by class."""

    def __init__(self) -> None:
        self._by_name: dict[str, AnyTask] = {}
        self._by_class: dict[type, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Register a task under its name and aliases; each may be taken once only."""
        for name in (task.name, *task.options.aliases):
            if name in self._by_name:
                raise DeclarationError(
                    f"Two tasks are named {name!r}; give one of them another name with @app.task(name=…)."
                )
        if isinstance(task.target, type):
            if other := self._by_class.get(task.target):
                raise DeclarationError(
                    f"The class {task.target.__name__} is the task {other.name!r} already; give that one aliases."
                )
            self._by_class[task.target] = task
        for name in (task.name, *task.options.aliases):
            self._by_name[name] = task

    def find(self, name: str) -> AnyTask | None:
        """The task with this name or alias."""
        return self._by_name.get(name)

    def of(self, kind: type) -> AnyTask | None:
        """The task that this very class is; a subclass of a task is not one."""
        return self._by_class.get(kind)

    def __iter__(self) -> Iterator[AnyTask]:
        return iter(dict.fromkeys(self._by_name.values()))

    def __len__(self) -> int:
        return len(set(map(id, self._by_name.values())))
