"""Chooses the queues that a worker serves: all queues of its app or the named queues, and which listeners.

Pure functions. Listeners are included and excluded by name, because the code refers to them by name. All else is
chosen by queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..config import WorkerOptions
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..app import Laneway


def queues_served(app: Laneway, options: WorkerOptions) -> list[str]:
    """The queues of a worker with these options. Raises ConfigError for what cannot be meant."""
    listeners = {listener.name: listener for listener in app.listeners()}
    for option, given in (("include", options.include), ("exclude", options.exclude)):
        _ensure_known(option, given, listeners)
    included = list(options.include) or list(listeners)
    chosen = [listeners[name].queue for name in listeners if name in included and name not in options.exclude]
    left_out = {listener.queue: listener.name for listener in listeners.values() if listener.queue not in chosen}
    if options.queues:
        for queue in options.queues:
            if queue in left_out:
                raise ConfigError(
                    f"The queue {queue} is to be served, and its listener {left_out[queue]} is not; leave one of them "
                    "out."
                )
        named = chosen if options.include else []
        return list(dict.fromkeys([*options.queues, *named]))
    served = [queue for queue in app.queues() if queue not in left_out]
    if not served:
        raise ConfigError(
            "Nothing is left to serve: all listeners are left out, and the app has no tasks besides; include one of "
            f"{', '.join(listeners)}, or exclude fewer."
        )
    return served


def _ensure_known(option: str, given: Iterable[str], listeners: Iterable[str]) -> None:
    names = list(listeners)
    for name in given:
        if name not in names:
            there = f"there is {', '.join(names)}" if names else "the app has none"
            raise ConfigError(f"There is no listener {name!r} to {option}; {there}.")
