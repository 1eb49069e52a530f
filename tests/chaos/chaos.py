"""Runs many keyed jobs with several worker processes and a killer, and checks the result.

LANEWAY_CHAOS=1 makes the run large: see `test_failpoint_kills.py` and `make chaos`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from laneway import Laneway
from laneway.jobs.data import Kind, NewJob
from laneway.worker.process.tree import descendants
from tests.support.checkers import AcceptedCall, Snapshot, lost, out_of_order, overlap, repeats
from tests.support.history import History, HistoryEvent, read_history
from tests.support.worker_processes import kill, stop

PROGRAM = Path(__file__).with_name("program.py")
LEASE_S = 2.0
#: Where processes die, and after how often reaching the place they do, at least and at most.
PLACES = {
    "after claim": (1, 5),
    "mid job": (5, 150),
    "before settle": (1, 5),
    "after settle": (1, 5),
    "during renew": (1, 2),
}
#: The same of a server: it may do what it was asked for, and nobody hears of it. "after post": what a run sends to
#: another queue of a Cluster is in an outbox and not delivered.
INSIDE = {
    "sqlite": {"inside settle": (1, 5)},
    "redis": {"inside call": (10, 60)},
    "redis+cluster": {"inside call": (10, 60), "after post": (1, 5)},
    "sqs": {},
}
FROM_OUTSIDE = "from outside"


class Size(msgspec.Struct, frozen=True):
    """How much of it."""

    jobs: int
    keys: int
    kills: int
    #: Seconds that a call takes.
    takes_s: float
    #: Whether each call sends another one to another queue.
    sends: bool = False
    #: Whether the shard count of the queue changes again and again.
    reshards: bool = False
    lease_s: float = LEASE_S


class Outcome(msgspec.Struct):
    """What came of it."""

    findings: list[str]
    kills: dict[str, int]
    repeats: int
    seconds: float
    #: How often the shard count has changed.
    reshardings: int


class Killer:
    """Deals out deaths: so many in all, in every place alike, and a few at any moment, of children and whole trees."""

    def __init__(self, kills: int, seed: int, folder: Path, counts: dict[str, tuple[int, int]]) -> None:
        chance = Random(seed)
        places = list(counts)
        outside = kills // 8
        self._folder = folder
        self._chance = chance
        planned = [places[number % len(places)] for number in range(kills - outside)]
        chance.shuffle(planned)
        folder.mkdir()
        for number, place in enumerate(planned):
            (folder / f"{number:03}-{place}-{chance.randint(*counts[place])}").touch()
        self._outside_left = outside
        self._outside_done = 0
        self._at = time.monotonic() + 1.0

    def strike(self, supervisor: int, history: History) -> None:
        """Kill something of this worker now, if it is time: its child, and every other time the whole tree."""
        if not self._outside_left or time.monotonic() < self._at or not (children := descendants(supervisor)):
            return
        self._at = time.monotonic() + 0.5 + self._chance.random()
        self._outside_left -= 1
        self._outside_done += 1
        for pid in children:
            stop(pid)  # nothing may begin between the note and the kill
            history.note("K", pid=pid)
            self._untake(pid)
        if self._outside_left % 2:
            kill(supervisor, signal.SIGKILL)
        for pid in children:  # one that is stopped cannot end itself with its supervisor
            kill(pid, signal.SIGKILL)

    def collect(self) -> None:
        """Take back the deaths of processes that ended otherwise."""
        for planned in self._folder.glob("taken.*"):
            pid = int(planned.name.split(".")[1])
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                self._untake(pid)

    def _untake(self, pid: int) -> None:
        """Let another process die what this one will not."""
        for planned in self._folder.glob(f"taken.{pid}.*"):
            with suppress(FileNotFoundError):  # it has just died it
                planned.rename(self._folder / planned.name.split(".", 2)[2])

    def left(self) -> bool:
        """Whether there are deaths that nobody has died yet."""
        return bool(self._outside_left) or any(self._folder.glob("[0-9]*-*")) or any(self._folder.glob("taken.*"))

    def done(self) -> dict[str, int]:
        """How many have died where."""
        places = Counter(path.name.split(".")[1] for path in self._folder.glob("died.*"))
        return {**places, FROM_OUTSIDE: self._outside_done}


def run(folder: Path, url: str, size: Size, *, workers: int = 3, seed: int = 1) -> Outcome:
    """Enqueue, let workers run and die until nothing is left, and check."""
    began = time.monotonic()
    path, deaths = folder / "history", folder / "deaths"
    app = Laneway(url)
    work = Work(app, size)
    killer = Killer(size.kills, seed, deaths, places_of(url))
    told = {"LANEWAY_URL": url, "HISTORY": str(path), "TAKES_S": str(size.takes_s), "DEATHS": str(deaths)}
    if size.sends:
        told["SENDS"] = "sent-orders"
    _serve(killer, work, {**os.environ, **told}, folder, workers, size.lease_s)
    work.finish_resharding()
    events = read_history(path)
    accepted = work.accepted
    if size.sends:
        keys = [(f"{each.key}-sent", each.seq) for each in accepted]
        accepted = accepted + [AcceptedCall(key, seq, f"{key}#{seq}") for key, seq in keys]
    findings = check(app, accepted, events)
    app.close()
    return Outcome(findings, killer.done(), repeats(events), time.monotonic() - began, work.reshardings)


def places_of(url: str) -> dict[str, tuple[int, int]]:
    """Where processes die on this broker."""
    return PLACES | INSIDE[url.partition(":")[0]]


class Work:
    """The calls: those of a key in the order of their numbers, spread over the keys.

    More follow when they run out before the deaths do: how many calls a machine needs for that depends on its speed.
    """

    def __init__(self, app: Laneway, size: Size) -> None:
        self._app = app
        self._keys = size.keys
        self._reshards = size.reshards
        self._at = 0.0
        self.reshardings = 0
        self.accepted: list[AcceptedCall] = []
        app.broker.declare("orders", 5)
        self._add(size.jobs)

    def outlast(self, killer: Killer) -> None:
        """Add calls if few are left, but not all deaths were died."""
        if time.monotonic() < self._at:
            return
        self._at = time.monotonic() + 0.2
        killer.collect()
        if not killer.left():
            return
        if self._reshards:
            self._reshard(limit=1)  # the workers do the rest
        (stats,) = [each for each in self._app.broker.inspect.stats() if each.queue == "orders"]
        if stats.length <= self._keys // 2:
            self._add(10 * self._keys)

    def _reshard(self, limit: int) -> bool:
        """Begin to change the shard count, or go on; whether that is done."""
        is_done = self._app.broker.shards.reshard("orders", (9, 2, 5)[self.reshardings % 3], limit=limit).done
        self.reshardings += is_done
        return is_done

    def finish_resharding(self) -> None:
        while self._reshards and not self._reshard(limit=1_000):
            pass

    def _add(self, calls: int) -> None:
        done, keys = len(self.accepted), self._keys
        numbers = range(done, done + calls)
        new = [AcceptedCall(f"k{n % keys}", n // keys, f"k{n % keys}#{n // keys}") for n in numbers]
        for start in range(0, calls, 5_000):
            self._app.broker.enqueue([new_call(each) for each in new[start : start + 5_000]])
        self.accepted += new


def new_call(call: AcceptedCall) -> NewJob:
    """As the program of these tests takes it."""
    body = f'{{"_job_class":"work","_job_params":{{"key":"{call.key}","seq":{call.seq}}},"_job_id":"{call.job}"}}'
    return NewJob(queue="orders", key=call.key, kind=Kind.KEYED, identity=call.job, body=body)


def _serve(killer: Killer, work: Work, environ: dict[str, str], folder: Path, workers: int, lease_s: float) -> None:
    """Keep so many workers running, a new one whenever one was killed, until all say that nothing is left."""
    command = [sys.executable, "-m", "laneway", "worker", f"{PROGRAM}:app", "--until-empty", "--lease", str(lease_s)]
    history = History(environ["HISTORY"])
    with (folder / "workers.log").open("ab") as log:
        processes = [subprocess.Popen(command, env=environ, stdout=log, stderr=log) for _ in range(workers)]
        while processes:
            work.outlast(killer)
            for process in processes.copy():
                code = process.poll()
                if code is None:
                    killer.strike(process.pid, history)
                    continue
                processes.remove(process)
                if code == -9 or (code == 0 and killer.left()):
                    processes.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
                elif code != 0:
                    raise RuntimeError(f"A worker ended with {code}; see {folder}/workers.log.")
            time.sleep(0.02)
    history.close()


def check(app: Laneway, accepted: list[AcceptedCall], events: list[HistoryEvent]) -> list[str]:
    """Everything that must be true, whoever was killed."""
    dead = app.broker.inspect.listing("orders", "dead", limit=100).jobs
    morgue = Snapshot(dead=frozenset(payload.identity for view in dead for payload in view.payloads))
    findings = lost(accepted, events, morgue) + overlap(events) + out_of_order(events)
    findings += [finding.text for finding in app.broker.health.check()]
    left = [each for each in app.broker.inspect.stats() if each.length or each.busy or each.dead]
    return findings + [f"Something is left: {stats}." for stats in left]
