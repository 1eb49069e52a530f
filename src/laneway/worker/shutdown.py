"""The end of a worker: what runs is let finish, what is left is settled, and the parts are stopped, in this order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..telemetry import WorkerStopped, WorkerStopping, WorkerWaiting
from .process.channel import Leaving
from .run.run import Run
from .stopping import FIRST_SAY_S, Stopping

if TYPE_CHECKING:
    from .assembly import Parts

#: How long the broker may take to record the last settlements; and if it is known to be away.
LAST_TURN_S, LAST_TURN_AWAY_S = 5.0, 1.0
#: How long it may take to note that a worker leaves, if a supervisor will say so anyway, or it seems to be away.
GOODBYE_S = 2.0
#: How long the parts that wait for it are waited for; then it counts as silent.
SILENT_S = 1.0


def end(parts: Parts, stopping: Stopping, timeout_s: float) -> bool:
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
    parts.tell_beat()
    if parts.link is not None:
        parts.link.tell(Leaving(parts.blamed, finished=not abandoned and parts.died is None))
    if not abandoned or (not running and all(settled)):
        # What still runs must not be handed out while it does: that is left to the supervisor, who knows when this
        # process is gone, or the lease to run out.
        _say_goodbye(parts, silent=not all(idle))
    emit(WorkerStopped(parts.membership.id, abandoned, parts.processed, parts.failed))
    return not abandoned


def _join_fetchers(parts: Parts) -> list[bool]:
    """Have the fetchers settle what is left; whether each has."""
    deadline = time.monotonic() + (LAST_TURN_AWAY_S if parts.outage else LAST_TURN_S)
    say_at = min(time.monotonic() + FIRST_SAY_S, deadline)
    settled = [fetcher.join(say_at - time.monotonic()) for fetcher in parts.fetchers]
    if not all(settled) and say_at <= time.monotonic() < deadline - 0.1:
        parts.app.telemetry.emit(WorkerWaiting(parts.membership.id, [], deadline - time.monotonic()))
        settled = [fetcher.join(deadline - time.monotonic()) for fetcher in parts.fetchers]
    return settled


def _say_goodbye(parts: Parts, silent: bool) -> None:
    if parts.link is None:
        parts.membership.leave(parts.blamed, GOODBYE_S if silent else LAST_TURN_S, "The lease will run out.")
    elif not silent and not parts.outage:  # else it is left to the supervisor, who says it for whoever has ended
        parts.membership.leave(parts.blamed, GOODBYE_S, "The supervisor tries again.")


def _end_isolated(parts: Parts) -> None:
    """End what runs in other processes, so that nothing runs on; their claims are given back."""
    parts.pool.close()
    given_back = time.monotonic() + LAST_TURN_S
    while any(run.apart for run in list(parts.runner.running.values())) and time.monotonic() < given_back:
        time.sleep(0.001)


def _names(running: dict[int, Run]) -> list[str]:
    return [f"{run.call.task.name} {run.claim.key}" for run in list(running.values())]
