"""How those who wait for work are woken: by a bell for each queue, which a wait takes away."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import BrokerAwayError
from .client.server import Call
from .layout import Layouts
from .script import load


def bells_for(layouts: Layouts, queue: str, tags: int = 1) -> list[str] | None:
    """What a script is told to ring, for each of its tags. None on a cluster: no script may touch another slot there,
    and whoever calls it does what `ring_after` does."""
    return None if layouts.server.is_cluster else [layouts.keys.bell(queue)] * tags


def ring_after(layouts: Layouts, queue: str) -> None:
    """Ring if the script that has put something into the queue could not."""
    if layouts.server.is_cluster:
        ring(layouts, queue)


def ring(layouts: Layouts, queue: str) -> None:
    """Have somebody look at a queue."""
    layouts.server.run(load("wake"), [layouts.keys.bell(queue)], [])


def rings(layouts: Layouts, queues: Iterable[str]) -> list[Call]:
    """The calls that have somebody look at queues."""
    return [(load("wake"), [layouts.keys.bell(queue)], []) for queue in queues]


def ring_all(layouts: Layouts, queues: Iterable[str]) -> None:
    """Have somebody look at queues into which something was put, if that can be had: in a while they look anyway."""
    try:
        layouts.server.run_all(rings(layouts, queues))
    except BrokerAwayError:
        pass  # what was put there is there
