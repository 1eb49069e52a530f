"""When a worker that is to end with its work has none left: `--until-empty`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..capabilities import gather_of, is_undelivered, makes_queues
from ..errors import LanewayError

if TYPE_CHECKING:
    from ..broker import Broker
    from ..jobs.data import JobView, QueueStats

#: The queues that a worker serves, each with the shards that it may claim from; None: all of them.
Served = Mapping[str, Collection[int] | None]

#: How often it looks; and where requests are counted.
LOOK_S, LOOK_SELDOM_S = 0.05, 1.0


def look_s(broker: Broker) -> float:
    """Seconds between two looks."""
    return LOOK_S if gather_of(broker).count <= 1 else LOOK_SELDOM_S


def is_empty(broker: Broker, served: Served, unfinished: Callable[[], bool]) -> bool:
    """Whether no job of the shards served is due or running, here or elsewhere, and all that runs have sent is stored.

    On a Cluster what any worker's runs have sent to these queues counts while it is on its way.
    """
    try:
        before = _idle(broker, served, unfinished)
        # What was in one shard when the others were looked at may have got into another one since, by a run.
        return before is not None and not is_undelivered(broker, served) and before == _idle(broker, served, unfinished)
    except LanewayError:
        return False  # the fetchers say that it is away


def _idle(broker: Broker, served: Served, unfinished: Callable[[], bool]) -> list[tuple[int, int]] | None:
    """How many runs of these queues have ended, and how many of them failed, if there is nothing to be done now.

    Where a splitter has chosen shards they are not compared: the worker of another node may end runs all the time.
    """
    if unfinished():
        return None
    queues = [stats for stats in broker.stats() if stats.queue in served]
    if len(queues) < len(served) and not makes_queues(broker):
        return None  # one is missing, which the fetchers say: when it has been made there may be something in it
    if not all(_is_idle(broker, stats, served[stats.queue]) for stats in queues):
        return None
    return [(stats.processed, stats.failed) for stats in queues if served[stats.queue] is None]


def _is_idle(broker: Broker, stats: QueueStats, shards: Collection[int] | None) -> bool:
    """Whether nothing of a queue is due or runs; of some of its shards, if a splitter has chosen them."""
    due = not stats.paused and stats.length != stats.delayed
    if shards is None or not (due or stats.busy):
        return not (due or stats.busy)
    # In this order: what another worker claims in between is seen running.
    if due and any(shard in shards for shard in broker.lags(stats.queue)):
        return False
    return not shards or not any(job.shard in shards for job in _running(broker, stats.queue))


def _running(broker: Broker, queue: str) -> Iterator[JobView]:
    page = broker.listing(queue, "running")
    yield from page.jobs
    while page.after is not None:
        page = broker.listing(queue, "running", after=page.after)
        yield from page.jobs
