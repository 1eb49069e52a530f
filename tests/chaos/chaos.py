"""Many keyed jobs, several worker processes, and a killer; and what came of it.

LANEWAY_CHAOS=1 makes it large: see `test_kills.py`, and `make chaos`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import msgspec

from laneway import Laneway
from laneway.job import Kind, NewJob
from laneway.testing.checkers import Accepted, Snapshot, lost, out_of_order, overlap, repeats
from laneway.testing.history import Event, History, read_history

PROGRAM = Path(__file__).with_name("program.py")
LEASE_S = 2.0
#: Where processes die, and after how often reaching the place they do, at least and at most.
PLACES = {
    "after claim": (1, 5),
    "mid job": (5, 150),
    "before settle": (1, 5),
    "inside settle": (1, 5),
    "after settle": (1, 5),
    "during renew": (1, 2),
}
FROM_OUTSIDE = "from outside"


class Size(msgspec.Struct, frozen=True):
    """How much of it."""

    jobs: int
    keys: int
    kills: int
    #: Seconds that a call takes.
    takes_s: float


class Outcome(msgspec.Struct):
    """What came of it."""

    findings: list[str]
    kills: dict[str, int]
    repeats: int
    seconds: float


class Killer:
    """Deals out deaths: so many in all, in every place alike, a few at any moment at all."""

    def __init__(self, kills: int, seed: int) -> None:
        self._chance = Random(seed)
        places = list(PLACES)
        outside = kills // 8
        self._left = [places[number % len(places)] for number in range(kills - outside)] + [FROM_OUTSIDE] * outside
        self._chance.shuffle(self._left)
        self._lock = threading.Lock()
        self.done: dict[str, int] = {}

    def next(self) -> tuple[str | None, int]:
        """A place to die at, and when; None: no more."""
        with self._lock:
            place = self._left.pop() if self._left else None
            return place, self._chance.randint(*PLACES.get(place or "", (1, 3)))

    def died(self, place: str) -> None:
        with self._lock:
            self.done[place] = self.done.get(place, 0) + 1


def run(folder: Path, size: Size, *, workers: int = 3, seed: int = 1) -> Outcome:
    """Enqueue, let workers run and die until nothing is left, and check."""
    began = time.monotonic()
    url, path = f"sqlite:///{folder / 'jobs.db'}", folder / "history"
    app = Laneway(url)
    accepted = _enqueue(app, size.jobs, size.keys)
    killer = Killer(size.kills, seed)
    environ = {**os.environ, "LANEWAY_URL": url, "HISTORY": str(path), "TAKES_S": str(size.takes_s)}
    slots = [threading.Thread(target=_serve, args=(killer, environ, folder, slot)) for slot in range(workers)]
    for thread in slots:
        thread.start()
    for thread in slots:
        thread.join()
    events = read_history(path)
    findings = check(app, accepted, events)
    app.close()
    return Outcome(findings, killer.done, repeats(events), time.monotonic() - began)


def _enqueue(app: Laneway, jobs: int, keys: int) -> list[Accepted]:
    """All calls, those of a key in the order of their numbers, spread over the keys."""
    app.broker.declare("orders", 5)
    accepted = [Accepted(f"k{n % keys}", n // keys, f"k{n % keys}#{n // keys}") for n in range(jobs)]
    for start in range(0, jobs, 5_000):
        app.broker.enqueue([_new(each) for each in accepted[start : start + 5_000]])
    return accepted


def _new(call: Accepted) -> NewJob:
    body = f'{{"_job_class":"work","_job_params":{{"key":"{call.key}","seq":{call.seq}}},"_job_id":"{call.job}"}}'
    return NewJob(queue="orders", key=call.key, kind=Kind.KEYED, identity=call.job, body=body)


def _serve(killer: Killer, environ: dict[str, str], folder: Path, slot: int) -> None:
    """Keep one worker process running, a new one whenever one has died, until one says that nothing is left."""
    command = [sys.executable, "-m", "laneway", "worker", f"{PROGRAM}:app", "--until-empty", "--lease", str(LEASE_S)]
    history = History(environ["HISTORY"])
    while True:
        place, count = killer.next()
        told = {"DIE_AT": f"{place}:{count}"} if place and place != FROM_OUTSIDE else {}
        with (folder / f"worker-{slot}.log").open("ab") as log:
            process = subprocess.Popen(command, env={**environ, **told}, stdout=log, stderr=log)
        try:
            code = process.wait(timeout=0.7 + count / 2 if place == FROM_OUTSIDE else None)
        except subprocess.TimeoutExpired:
            history.note("K", pid=process.pid)
            process.kill()
            code = process.wait()
        if code == -9 and place is not None:
            killer.died(place)
        elif code != 0:
            raise RuntimeError(f"A worker ended with {code}; see {folder}/worker-{slot}.log.")
        else:
            return


def check(app: Laneway, accepted: list[Accepted], events: list[Event]) -> list[str]:
    """Everything that must be true, whoever was killed."""
    dead = app.broker.listing("orders", "dead", limit=100).jobs
    morgue = Snapshot(dead=frozenset(payload.identity for view in dead for payload in view.payloads))
    findings = lost(accepted, events, morgue) + overlap(events) + out_of_order(events) + app.broker.check()
    (stats,) = [each for each in app.broker.stats() if each.queue == "orders"]
    if stats.length or stats.busy or stats.dead:
        findings.append(f"Something is left: {stats}.")
    return findings
