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

from ..errors import BrokerRefusedError, ConfigError, LanewayError, NoQueueError
from ..telemetry import WorkerStopped, WorkerStopping, WorkerWaiting
from .process.channel import LeaveMessage
from .run.run import Run

if TYPE_CHECKING:
    from ..broker import Broker
    from ..config import WorkerOptions
    from ..jobs.data import JobView, QueueStats
    from .assembly import Assembly

#: Seconds until the worker first says that it waits for running jobs, and seconds between the later messages.
FIRST_SAY_S, SAY_S = 2.0, 5.0


class StopState:
    """The request to stop a worker."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        #: Set when the worker must not wait for running jobs any more.
        self.given_up = threading.Event()
        #: Whether to wait until all jobs have finished, however long that takes. A more urgent request overrides it.
        self._retiring = False
        self._hurry = threading.Event()
        self._interrupts = 0

    def signalled(self, number: int) -> None:
        """Handle TERM, INT or USR1. A second INT ends the wait for running jobs."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def give_up(self) -> None:
        """Stop now, and leave running jobs to other workers."""
        self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def retire(self) -> None:
        """Stop without a deadline: another process takes this worker's place."""
        self._retiring = True
        self.asked.set()

    def reset(self) -> None:
        """Clear all requests, so that the worker may be started again."""
        self.asked.clear()
        self.given_up.clear()
        self._hurry.clear()
        self._retiring = False
        self._interrupts = 0

    def wait(self, unfinished: Callable[[], bool], timeout_s: float, say: Callable[[float | None], None]) -> None:
        """Let running jobs finish, and `say` from time to time how many seconds they still have; None: no limit."""
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

#: Seconds between two checks for empty queues; and on a broker that counts requests.
LOOK_S, LOOK_SELDOM_S = 0.05, 1.0


def look_s(broker: Broker) -> float:
    """Seconds between two checks for empty queues."""
    counts_requests = broker.capabilities.settle_batch.count > 1  # else it would not collect settlements
    return LOOK_SELDOM_S if counts_requests else LOOK_S


def check_until_empty(broker: Broker, options: WorkerOptions) -> None:
    """Raise ConfigError if a worker is to stop when its queues are empty, and the broker cannot tell."""
    if options.until_empty and not broker.capabilities.has("inspect"):
        raise ConfigError(f"until_empty cannot be used on this broker. {broker.capabilities.lacks['inspect']}")


def is_empty(parts: Assembly) -> bool:
    """Whether no job of the served shards is due, or running on any worker.

    On a Cluster, jobs that any worker's runs have sent to these queues count while they are on their way. Raises
    BrokerRefusedError if the broker serves the fetchers and refuses this: the worker could never tell when to stop.
    """
    broker, served = parts.app.broker, parts.served()
    try:
        before = _idle(broker, served, parts.unfinished)
        # A run may have sent a job to a queue that was already looked at.
        return before is not None and before == _idle(broker, served, parts.unfinished)
    except LanewayError as error:
        # The fetchers report that the broker is away, or refuses their turns too, or that a queue is missing.
        if isinstance(error, BrokerRefusedError) and not isinstance(error, NoQueueError) and not parts.outage:
            raise
        return False


def _idle(broker: Broker, served: Served, unfinished: Callable[[], bool]) -> list[tuple[int, int]] | None:
    """The numbers of jobs done and of runs failed, for each queue; None if there is work to do now.

    Queues for which a splitter has chosen shards are left out: the worker of another node may end runs all the time.
    """
    if unfinished():
        return None
    queues = [stats for stats in broker.inspect.stats() if stats.queue in served]
    if len(queues) < len(served) and not broker.capabilities.makes_queues:
        return None  # a queue is missing, as the fetchers report: when it is made, there may be jobs in it
    if not all(_is_idle(broker, stats, served[stats.queue]) for stats in queues):
        return None
    return [(stats.processed, stats.failed) for stats in queues if served[stats.queue] is None]


def _is_idle(broker: Broker, stats: QueueStats, shards: Collection[int] | None) -> bool:
    """Whether no job of a queue is due or running. If a splitter has chosen shards, only those count."""
    due = not stats.paused and stats.length != stats.delayed
    if shards is None or not (due or stats.busy):
        return not (due or stats.busy)
    # Due jobs first: a job that another worker claims in between is then seen running.
    if due and any(shard in shards for shard in broker.inspect.lags(stats.queue)):
        return False
    return not shards or not any(job.shard in shards for job in _running(broker, stats.queue))


def _running(broker: Broker, queue: str) -> Iterator[JobView]:
    page = broker.inspect.listing(queue, "running")
    yield from page.jobs
    while page.after is not None:
        page = broker.inspect.listing(queue, "running", after=page.after)
        yield from page.jobs


#: Seconds that the broker has to record the last settlements; and if it is known to be away.
LAST_TURN_S, LAST_TURN_AWAY_S = 5.0, 1.0
#: Seconds that the broker has to record that a worker leaves, if a supervisor will repeat it, or the broker seems away.
GOODBYE_S = 2.0
#: Seconds to wait for the parts that wait for the broker. After that the broker counts as silent.
SILENT_S = 1.0


def end(parts: Assembly, stopping: StopState, timeout_s: float) -> bool:
    """Stop fetching, give back claims that have not started, and let runs finish. False: some had to be abandoned."""
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
        # A job that still runs must not be handed out. Its claim is left to the supervisor, which knows when this
        # process is gone, or to the end of the lease.
        _announce_leave(parts, silent=not all(idle))
    emit(WorkerStopped(parts.membership.id, abandoned, parts.processed, parts.failed))
    return not abandoned


def _join_fetchers(parts: Assembly) -> list[bool]:
    """Wait until the fetchers have settled the claims that are left. Returns for each whether it has."""
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
    elif not silent and not parts.outage:  # else the supervisor does it, as for every child that has ended
        parts.membership.leave(parts.blamed, GOODBYE_S, "The supervisor tries again.")


def _end_isolated(parts: Assembly) -> None:
    """End the isolated processes, so that no run continues there. The claims of these runs are given back."""
    parts.pool.close()
    given_back = time.monotonic() + LAST_TURN_S
    while any(run.apart for run in list(parts.runner.running.values())) and time.monotonic() < given_back:
        time.sleep(0.001)


def _names(running: dict[int, Run]) -> list[str]:
    return [f"{run.call.task.name} {run.claim.key}" for run in list(running.values())]
