"""Refuses tasks that the broker cannot serve, when they are declared or when the broker is opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .errors import DeclarationError

if TYPE_CHECKING:
    from .broker import Capabilities
    from .tasks.task import AnyTask


def ensure_supported(capabilities: Capabilities, tasks: Iterable[AnyTask]) -> None:
    """Raise DeclarationError for the first task that needs what the broker lacks."""
    for task in tasks:
        if problem := _problem(capabilities, task):
            raise DeclarationError(f"Task {task.name}: {problem}")


def _problem(capabilities: Capabilities, task: AnyTask) -> str | None:
    from .tasks.listener import Listener  # it imports this module

    if reason := capabilities.lacks_kind(task.kind):
        return reason
    if isinstance(task, Listener) and not capabilities.has("events"):
        return capabilities.lacks["events"]
    return capabilities.refusal(task.options, task.kind) if capabilities.refusal else None
