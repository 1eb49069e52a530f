"""How a worker stops: the request to stop, `--until-empty`, and the order in which the parts end.

`StopState` holds the request: from a signal, from the supervisor, or from the program that the worker runs in. A
retiring worker has no deadline; a second INT, or the supervisor's request to give up, ends the wait for running jobs.
`is_empty` looks twice, because a run may have moved a job to a shard that was already checked. `end` lets runs
finish, settles the rest, and stops the parts in a fixed order. It does not give back the claim of a job that still
runs: the supervisor does so when the process is gone, or the lease runs out.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError, LanewayError
from ..telemetry import WorkerStopped, WorkerStopping, WorkerWaiting
from .process.channel import LeaveMessage
from .run.run import Run

if TYPE_CHECKING:
    from ..broker import Broker
    from ..config import WorkerOptions
    from ..jobs.data import JobView, QueueStats
    from .assembly import Assembly

#: While it waits for what runs, it says so at first after so long, and then this often.
FIRST_SAY_S, SAY_S = 2.0, 5.0


class StopState:
    """What was asked of a worker."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        #: Not to wait for anything any more.
        self.given_up = threading.Event()
        #: To stop when everything has finished, however long that takes; until somebody is more urgent.
        self._retiring = False
        self._hurry = threading.Event()
        self._interrupts = 0

    def signalled(self, number: int) -> None:
        """TERM, INT or USR1 has come; a second INT cannot wait."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def give_up(self) -> None:
        """Leave what runs to others, now."""
        self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def retire(self) -> None:
        """Finish without haste: another takes this one's place."""
        self._retiring = True
        self.asked.set()

    def reset(self) -> None:
        """Nothing is asked any more: it may be started again."""
        self.asked.clear()
        self.given_up.clear()
        self._hurry.clear()
        self._retiring = False
        self._interrupts = 0

    def wait(self, unfinished: Callable[[], bool], timeout_s: float, say: Callable[[float | None], None]) -> None:
        """Let what runs finish, and say from time to time how long it still may take; None: any time."""
        now = time.monotonic()
        say_at, deadline = now + FIRST_SAY_S, float("inf")
        while unfinished() and now < deadline and not self.given_up.wait(0.005):
            if deadline == float("inf") and (not self._retiring or self._hurry.is_set()):
                deadline = now + timeout_s
            if now >= say_at:
                say_at = now + SAY_S
                say(None if deadline == float("inf") else deadline - now)
            now = time.monotonic()


#: The queues that a worker serves, each with the shards that it may claim from; None: all of them.
Served = Mapping[str, Collection[int] | None]

#: How often it looks; and where requests are counted.
LOOK_S, LOOK_SELDOM_S = 0.05, 1.0


def look_s(broker: Broker) -> float:
    """Seconds between two looks."""
    return LOOK_S if broker.capabilities.settle_batch.count <= 1 else LOOK_SELDOM_S


def check_until_empty(broker: Broker, options: WorkerOptions) -> None:
    """Raise ConfigError if a worker is to stop when its queues are empty, and the broker cannot tell."""
    if options.until_empty and not broker.capabilities.has("inspect"):
        raise ConfigError(f"until_empty cannot be used on this broker. {broker.capabilities.lacks['inspect']}")


def is_empty(broker: Broker, served: Served, unfinished: Callable[[], bool]) -> bool:
    """Whether no job of the shards served is due or running, here or elsewhere, and all that runs have sent is stored.

    On a Cluster what any worker's runs have sent to these queues counts while it is on its way.
    """
    try:
        before = _idle(broker, served, unfinished)
        # What was in one shard when the others were looked at may have got into another one since, by a run.
        if before is None or broker.inspect.undelivered(served):
            return False
        return before == _idle(broker, served, unfinished)
    except LanewayError:
        return False  # the fetchers say that it is away


def _idle(broker: Broker, served: Served, unfinished: Callable[[], bool]) -> list[tuple[int, int]] | None:
    """How many runs of these queues have ended, and how many of them failed, if there is nothing to be done now.

    Where a splitter has chosen shards they are not compared: the worker of another node may end runs all the time.
    """
    if unfinished():
        return None
    queues = [stats for stats in broker.inspect.stats() if stats.queue in served]
    if len(queues) < len(served) and not broker.capabilities.makes_queues:
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
    if due and any(shard in shards for shard in broker.inspect.lags(stats.queue)):
        return False
    return not shards or not any(job.shard in shards for job in _running(broker, stats.queue))


def _running(broker: Broker, queue: str) -> Iterator[JobView]:
    page = broker.inspect.listing(queue, "running")
    yield from page.jobs
    while page.after is not None:
        page = broker.inspect.listing(queue, "running", after=page.after)
        yield from page.jobs


#: How long the broker may take to record the last settlements; and if it is known to be away.
LAST_TURN_S, LAST_TURN_AWAY_S = 5.0, 1.0
#: How long it may take to note that a worker leaves, if a supervisor will say so anyway, or it seems to be away.
GOODBYE_S = 2.0
#: How long the parts that wait for it are waited for; then it counts as silent.
SILENT_S = 1.0


def end(parts: Assembly, stopping: StopState, timeout_s: float) -> bool:
    """Stop fetching, give back what has not started, and let what runs finish. False: some had to be abandoned."""
    emit, name = parts.app.telemetry.emit, parts.membership.id
    parts.stop_fetching()
    running = parts.runner.running
    emit(WorkerStopping(name, _names(running)))
    stopping.wait(parts.unfinished, timeout_s, lambda left_s: emit(WorkerWaiting(name, _names(running), left_s)))
    abandoned = len(running)
    parts.bus.close()
    _end_isolated(parts)
    for fetcher in parts.fetchers:
        fetcher.finish()
    settled = _join_fetchers(parts)
    if parts.died is None:  # the claim that ended the worker is unsettled too, but nothing runs it any more
        unsettled = (
            len(each.holdings) or 1 for each, is_settled in zip(parts.fetchers, settled, strict=True) if not is_settled
        )
        abandoned = max(abandoned, sum(unsettled))
    for duties in (parts.subscriptions, parts.duties):
        duties.stop(0.0 if parts.outage else SILENT_S)
    idle = [part.stop(0.0 if parts.outage else SILENT_S) for part in (parts.waker, parts.keeper)]
    parts.loop.stop()
    parts.hooks.stop(LAST_TURN_S)
    parts.pulse.stop()
    parts.send_heartbeat()
    if parts.link is not None:
        parts.link.send(LeaveMessage(parts.blamed, finished=not abandoned and parts.died is None))
    if not abandoned or (not running and all(settled)):
        # What still runs must not be handed out while it does: that is left to the supervisor, who knows when this
        # process is gone, or the lease to run out.
        _announce_leave(parts, silent=not all(idle))
    emit(WorkerStopped(parts.membership.id, abandoned, parts.processed, parts.failed))
    return not abandoned


def _join_fetchers(parts: Assembly) -> list[bool]:
    """Have the fetchers settle what is left; whether each has."""
    deadline = time.monotonic() + (LAST_TURN_AWAY_S if parts.outage else LAST_TURN_S)
    say_at = min(time.monotonic() + FIRST_SAY_S, deadline)
    settled = [fetcher.join(say_at - time.monotonic()) for fetcher in parts.fetchers]
    if not all(settled) and say_at <= time.monotonic() < deadline - 0.1:
        parts.app.telemetry.emit(WorkerWaiting(parts.membership.id, [], deadline - time.monotonic()))
        settled = [fetcher.join(deadline - time.monotonic()) for fetcher in parts.fetchers]
    return settled


def _announce_leave(parts: Assembly, silent: bool) -> None:
    if parts.link is None:
        parts.membership.leave(parts.blamed, GOODBYE_S if silent else LAST_TURN_S, "The lease will run out.")
    elif not silent and not parts.outage:  # else it is left to the supervisor, who says it for whoever has ended
        parts.membership.leave(parts.blamed, GOODBYE_S, "The supervisor tries again.")


def _end_isolated(parts: Assembly) -> None:
    """End what runs in other processes, so that nothing runs on; their claims are given back."""
    parts.pool.close()
    given_back = time.monotonic() + LAST_TURN_S
    while any(run.apart for run in list(parts.runner.running.values())) and time.monotonic() < given_back:
        time.sleep(0.001)


def _names(running: dict[int, Run]) -> list[str]:
    return [f"{run.call.task.name} {run.claim.key}" for run in list(running.values())]
