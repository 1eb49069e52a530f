"""Checks the history of many runs, whatever processes were killed meanwhile: pure functions.

Each checker returns its findings as sentences; an empty list is good. A history is a list of events in the order in
which they happened (`history.py`). A call is accepted once `enqueue` has returned for it. A Snapshot says where a
broker has its payloads: waiting, running or dead. `snapshot` takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from laneway.broker import Broker
from tests.support.history import HistoryEvent


class AcceptedCall(msgspec.Struct, frozen=True):
    """A call that `enqueue` has returned for: the `seq`th of its key."""

    key: str
    seq: int
    job: str


class Snapshot(msgspec.Struct, frozen=True):
    """Where a broker says that payloads are, by job."""

    waiting: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()


def lost(accepted: Iterable[AcceptedCall], events: Iterable[HistoryEvent], snapshot: Snapshot) -> list[str]:
    """Accepted, and it has neither ended well, nor does it lie in the morgue."""
    found = {event.job for event in events if event.what == "E"} | snapshot.dead
    return [
        f"Call {each.seq} of key {each.key} (job {each.job}) was accepted, has not ended and is not in the morgue."
        for each in accepted
        if each.job not in found
    ]


def overlap(events: Iterable[HistoryEvent]) -> list[str]:
    """Two runs of one key at the same time. A run lasts until it ends or its process is killed; what a process does
    after having been stopped for longer than its lease is not counted, for it cannot know."""
    findings: list[str] = []
    open_runs: dict[str, dict[tuple[str, int, int], HistoryEvent]] = {}
    ended: set[int] = set()
    for event in events:
        runs = open_runs.setdefault(event.key, {})
        run = (event.job, event.token, event.pid)
        match event.what:
            case "S" if event.pid not in ended:
                others = [other for name, other in runs.items() if name != run]
                findings += [
                    f"Key {event.key}: call {event.seq} began in process {event.pid} at {event.t} while call "
                    f"{other.seq} was running in process {other.pid} since {other.t}."
                    for other in others
                ]
                runs[run] = event
            case "E" | "F":
                runs.pop(run, None)
            case "K" | "P":
                ended.add(event.pid)
                for key in open_runs:
                    open_runs[key] = {name: run for name, run in open_runs[key].items() if run.pid != event.pid}
            case _:
                pass
    return findings


def out_of_order(events: Iterable[HistoryEvent]) -> list[str]:
    """The first run of a call began before the call in front of it had ended well or was buried."""
    findings: list[str] = []
    begun: set[tuple[str, int]] = set()
    over: set[tuple[str, int]] = set()
    stopped: set[int] = set()
    for event in events:
        call = event.key, event.seq
        if event.what in "EB":
            over.add(call)
        elif event.what == "P":
            stopped.add(event.pid)
        elif event.what == "S" and call not in begun and event.seq >= 0 and event.pid not in stopped:
            begun.add(call)
            if event.seq > 0 and (event.key, event.seq - 1) not in over:
                findings.append(f"Key {event.key}: call {event.seq} began before call {event.seq - 1} was over.")
    return findings


def stale_accepted(events: Iterable[HistoryEvent]) -> list[str]:
    """A settlement was taken though the key had been claimed anew, or had been settled under the same token."""
    findings: list[str] = []
    latest: dict[str, int] = {}
    settled: set[tuple[str, int]] = set()
    for event in events:
        if event.what in "CS":
            latest[event.key] = max(latest.get(event.key, 0), event.token)
        elif event.what == "A":
            if event.token < latest.get(event.key, 0):
                findings.append(
                    f"Key {event.key}: a settlement under token {event.token} was taken, though the key had been "
                    f"claimed under {latest[event.key]} by then."
                )
            if (event.key, event.token) in settled:
                findings.append(f"Key {event.key}: the claim with token {event.token} was settled twice.")
            settled.add((event.key, event.token))
    return findings


def conservation(accepted: Collection[str], done: Collection[str], snapshot: Snapshot) -> list[str]:
    """Accepted = waiting + running + done + dead. All by job; `done` are those whose end the broker has taken."""
    everywhere = snapshot.waiting | snapshot.running | snapshot.dead
    findings = [
        f"Job {job} was accepted, and is neither waiting, running, done nor dead."
        for job in sorted(set(accepted) - everywhere - set(done))
    ]
    findings += [f"Job {job} is there and was never accepted." for job in sorted(everywhere - set(accepted))]
    places = Counter((*snapshot.waiting, *snapshot.running, *snapshot.dead))
    findings += [f"Job {job} is in {count} places at once." for job, count in sorted(places.items()) if count > 1]
    return findings


def repeats(events: Iterable[HistoryEvent]) -> int:
    """How many runs there were of calls that had begun before, and had not failed."""
    count = 0
    last: dict[tuple[str, str], str] = {}
    for event in events:
        call = event.key, event.job
        if event.what == "S":
            count += last.get(call, "F") != "F"
        if event.what in "SEF":
            last[call] = event.what
    return count


def snapshot(broker: Broker, names: Iterable[tuple[str, str]]) -> Snapshot:
    """Every payload of these keys (queue, key) by its identity: a keyed call's is its own id.

    A key is looked at in one step, and one after the other; nothing must happen meanwhile that would move payloads from
    key to key, which nothing does.
    """
    places: dict[str, set[str]] = {"waiting": set(), "running": set(), "dead": set()}
    for queue, key in names:
        for view in broker.inspect.find(queue, key):
            place = view.status if view.status in ("running", "dead") else "waiting"
            places[place].update(payload.identity for payload in view.payloads)
    return Snapshot(*(frozenset(places[place]) for place in ("waiting", "running", "dead")))
