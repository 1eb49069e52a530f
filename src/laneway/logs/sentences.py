"""One sentence and a level per event. A sentence stays one line, whatever text the event holds."""

from __future__ import annotations

import logging
from typing import Any

from ..telemetry import (
    BrokerAway,
    BrokerBack,
    DutyBack,
    DutyFailed,
    LeaseEnded,
    OutboxRefused,
    ProcessEnded,
    ProcessGivenUp,
    ProcessReplaced,
    ProcessStarted,
    QueueFound,
    QueueMissing,
    Reclaimed,
    RunEnded,
    SettlementRefused,
    Subscribed,
    SubscriptionFailed,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    WorkerWaiting,
)
from .text import one_line

#: A level, and what is said.
Sentence = tuple[int, str]


def sentence(event: Any, slow_s: float) -> Sentence:
    """What the log says of an event; a run of `slow_s` seconds or more is worth a warning."""
    level, line = run_sentence(event, slow_s) if isinstance(event, RunEnded) else SENTENCES[type(event)](event)
    return level, one_line(line)


def run_sentence(event: RunEnded, slow_s: float) -> Sentence:
    took = _duration(event.duration_s)
    head = _head(event)
    if event.verdict == "done":
        if event.duration_s >= slow_s:
            return logging.WARNING, f"{head} done, slow: took {took}"
        return logging.INFO, f"{head} done in {took}"
    error = f": {event.error}" if event.error else ""
    if event.verdict == "postpone":
        level = logging.WARNING if event.error else logging.INFO  # its process has died, or it raised all the same
        return level, f"{head} postponed for {_duration(event.delay_s)}{error}"
    return _failed(event)


def _failed(event: RunEnded | OutboxRefused) -> Sentence:
    head, error = _head(event), f": {event.error}" if event.error else ""
    if event.verdict == "bury":
        return logging.ERROR, f"{head} buried after attempt {event.attempt}{error}"
    return logging.WARNING, f"{head} failed in attempt {event.attempt}, again in {_duration(event.delay_s)}{error}"


def _head(event: RunEnded | OutboxRefused) -> str:
    call = f" {event.id}" if event.id else ""
    others = f" and {event.keys - 1} more" if event.keys > 1 else ""
    return f"{event.queue}/{event.task} {event.key}{call}{others}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _stopping(event: WorkerStopping) -> Sentence:
    if not event.running:
        return logging.INFO, "stopping"
    return logging.INFO, f"stopping; waiting for {', '.join(event.running[:5])}{_more(event.running)}"


def _waiting(event: WorkerWaiting) -> Sentence:
    what = f"{', '.join(event.running[:5])}{_more(event.running)}" if event.running else "the broker"
    until = "" if event.left_s is None else f"; giving up in {_duration(event.left_s)}"
    return logging.INFO, f"still waiting for {what}{until}"


def what_was_lost(worker: str, forgotten: bool) -> str:
    """How a worker has lost its lease."""
    if forgotten:
        return f"the broker does not know worker {worker} any more: it was emptied, or has come back without its data"
    return f"worker {worker} was taken for dead"


def _reclaimed(event: Reclaimed) -> Sentence:
    workers = ", ".join(event.workers)
    if event.count:
        return logging.WARNING, f"took back {event.count} jobs of dead workers {workers}".rstrip()
    return logging.WARNING, f"declared dead, with nothing to take back: {workers}"


def _more(names: list[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _process_ended(event: ProcessEnded) -> Sentence:
    head = f"process {event.number} (pid {event.pid}) {event.ending}"
    blamed = f"; deaths counted for what it was running: {event.blamed}" if event.blamed else ""
    if event.again_in_s is None:
        again = ""
    else:
        again = f"; another is started in {_duration(event.again_in_s)}" if event.again_in_s else "; another is started"
    return logging.INFO if event.orderly else logging.ERROR, f"{head}{blamed}{again}"


def _stopped(event: WorkerStopped) -> Sentence:
    counts = f"{event.processed} done, {event.failed} failed"
    if event.abandoned:
        return logging.ERROR, f"stopped with {event.abandoned} jobs unfinished: others take them over ({counts})"
    return logging.INFO, f"stopped ({counts})"


SENTENCES: dict[type, Any] = {
    WorkerStarted: lambda e: (
        logging.INFO,
        f"worker {e.worker} started: {e.tasks} tasks and listeners, queues {', '.join(e.queues)}, "
        f"{e.concurrency} jobs at once",
    ),
    WorkerStopping: _stopping,
    WorkerWaiting: _waiting,
    WorkerStopped: _stopped,
    ProcessStarted: lambda e: (logging.INFO, f"process {e.number} started (pid {e.pid})"),
    ProcessEnded: _process_ended,
    ProcessGivenUp: lambda e: (logging.ERROR, f"process {e.number} (pid {e.pid}) {e.why}: it is ended"),
    ProcessReplaced: lambda e: (logging.INFO, f"process {e.number} (pid {e.pid}) {e.why}: another takes its place"),
    LeaseEnded: lambda e: (logging.ERROR, f"{what_was_lost(e.worker, e.forgotten)}; it goes on under a new id"),
    Reclaimed: _reclaimed,
    OutboxRefused: _failed,
    SettlementRefused: lambda e: (
        logging.WARNING,
        f"{e.queue}: {len(e.keys)} runs ended after their claim was lost; others have taken them over",
    ),
    BrokerAway: lambda e: (
        logging.ERROR,
        f"the broker {'refuses' if e.refused else 'is away'}, trying again: {e.error}",
    ),
    BrokerBack: lambda e: (logging.INFO, f"the broker is back after {_duration(e.away_s)}"),
    QueueMissing: lambda e: (
        logging.ERROR,
        f"the queue {e.queue} is missing, looking for it again; other queues go on: {e.error}",
    ),
    QueueFound: lambda e: (logging.INFO, f"the queue {e.queue} is there after {_duration(e.away_s)}"),
    DutyFailed: lambda e: (logging.ERROR, f"the {e.duty} fails, trying again; jobs go on without it: {e.error}"),
    Subscribed: lambda e: (logging.INFO, f"subscribed the queue {e.queue} to {e.topic}"),
    SubscriptionFailed: lambda e: (
        logging.ERROR,
        f"could not subscribe {', '.join(e.queues)}, trying again every minute; no events get there: {e.error}",
    ),
    DutyBack: lambda e: (logging.INFO, f"the {e.duty} is well again after {_duration(e.away_s)}"),
}
