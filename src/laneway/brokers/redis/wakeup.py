"""Wakes workers that wait for a queue, by an element in a Redis list per queue.

A waiting worker takes the element (BLPOP); the list never holds more than one. A script that stores a job pushes the
element itself. On a Cluster no script may touch another slot, so the caller wakes after the script
(`wake_on_cluster`, `wake_all`). `wake_all` ignores a server that is away: the jobs are stored, and waiting workers
look by themselves every `LOOK_S` (`broker`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import BrokerAwayError
from .client.server import Call
from .layout import Layouts
from .script import load


def wakeup_keys_for(layouts: Layouts, queue: str, tags: int = 1) -> list[str] | None:
    """What a script is told to ring, for each of its tags. None on a cluster: no script may touch another slot there,
    and whoever calls it does what `wake_on_cluster` does."""
    return None if layouts.server.is_cluster else [layouts.keys.wakeup_list(queue)] * tags


def wake_on_cluster(layouts: Layouts, queue: str) -> None:
    """Ring if the script that has put something into the queue could not."""
    if layouts.server.is_cluster:
        wake(layouts, queue)


def wake(layouts: Layouts, queue: str) -> None:
    """Have somebody look at a queue."""
    layouts.server.run(load("wake"), [layouts.keys.wakeup_list(queue)], [])


def wake_calls(layouts: Layouts, queues: Iterable[str]) -> list[Call]:
    """The calls that have somebody look at queues."""
    return [(load("wake"), [layouts.keys.wakeup_list(queue)], []) for queue in queues]


def wake_all(layouts: Layouts, queues: Iterable[str]) -> None:
    """Have somebody look at queues into which something was put, if that can be had: in a while they look anyway."""
    try:
        layouts.server.run_all(wake_calls(layouts, queues))
    except BrokerAwayError:
        pass  # what was put there is there
