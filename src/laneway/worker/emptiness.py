"""When a worker that is to end with its work has none left: `--until-empty`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..abilities import gather_of, is_undelivered, makes_queues
from ..errors import LanewayError

if TYPE_CHECKING:
    from ..broker import Broker

#: How often it looks; and where requests are counted.
LOOK_S, LOOK_SELDOM_S = 0.05, 1.0


def look_s(broker: Broker) -> float:
    """Seconds between two looks."""
    return LOOK_S if gather_of(broker).count <= 1 else LOOK_SELDOM_S


def is_empty(broker: Broker, names: set[str], unfinished: Callable[[], bool]) -> bool:
    """Whether nothing is due or runs in these queues, here or elsewhere, and all that runs have sent is stored."""
    try:
        before = _idle(broker, names, unfinished)
        # What was in one shard when the others were looked at may have got into another one since, by a run.
        return before is not None and not is_undelivered(broker, names) and before == _idle(broker, names, unfinished)
    except LanewayError:
        return False  # the fetchers say that it is away


def _idle(broker: Broker, names: set[str], unfinished: Callable[[], bool]) -> list[tuple[int, int]] | None:
    """How many runs of these queues have ended, and how many of them failed, if there is nothing to be done now."""
    if unfinished():
        return None
    queues = [stats for stats in broker.stats() if stats.queue in names]
    if len(queues) < len(names) and not makes_queues(broker):
        return None  # one is missing, which the fetchers say: when somebody has made it there may be something in it
    if any(stats.busy or not (stats.paused or stats.length == stats.delayed) for stats in queues):
        return None
    return [(stats.processed, stats.failed) for stats in queues]
