"""Load for tests that harm a server: a producer that keeps enqueueing calls of a few keys, and workers.

The producer repeats every call that got no reply, as any caller must. A call without a reply does not count as
accepted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laneway import Laneway
from laneway.errors import BrokerAwayError
from tests.chaos.chaos import PROGRAM, check, new_call
from tests.support.checkers import AcceptedCall, conservation, repeats, snapshot
from tests.support.history import HistoryEvent, parse_line
from tests.support.worker_processes import PATIENCE_S, wait_until

KEYS = [f"k{number}" for number in range(40)]
#: Calls that may wait before nobody enqueues any more.
MOST = 1_500
#: Longer than any outage: otherwise workers end what they cannot renew for, and others take over.
LEASE_S = 15.0


class Load:
    """Workers of their own processes, and a thread that enqueues."""

    def __init__(self, folder: Path, url: str, workers: int) -> None:
        self._folder = folder
        self._path = folder / "history"
        self._app = Laneway(url)
        self._app.broker.declare("orders", 5)
        self.accepted: list[AcceptedCall] = []
        #: Calls of `enqueue` that were not answered, and so repeated.
        self.unanswered = 0
        self._trouble: list[BaseException] = []
        self._path.touch()
        self._reading = threading.Lock()
        self._read_to = self._ended = 0
        self._events: list[HistoryEvent] = []
        self._stop = threading.Event()
        (folder / "deaths").mkdir()
        told = {"LANEWAY_URL": url, "HISTORY": str(self._path), "TAKES_S": "0.002", "DEATHS": str(folder / "deaths")}
        command = [sys.executable, "-m", "laneway", "worker", f"{PROGRAM}:app", "--lease", str(LEASE_S)]
        with (folder / "workers.log").open("ab") as log:
            self._workers = [
                subprocess.Popen(command, env={**os.environ, **told}, stdout=log, stderr=log) for _ in range(workers)
            ]
        self._producer = threading.Thread(target=self._produce)
        self._producer.start()

    # -- what goes on ------------------------------------------------------------------------------------

    def _produce(self) -> None:
        try:
            seq = 0
            while not self._stop.is_set():
                self._enqueue([AcceptedCall(key, seq, f"{key}#{seq}") for key in KEYS])
                seq += 1
                while not self._stop.wait(0.01) and len(self.accepted) - self.ended() > MOST:
                    pass
        except BaseException as error:
            self._trouble.append(error)

    def _enqueue(self, calls: list[AcceptedCall]) -> None:
        while True:
            try:
                self._app.broker.enqueue([new_call(each) for each in calls])
            except BrokerAwayError:
                self.unanswered += 1
                continue
            self.accepted += calls
            return

    def events(self) -> list[HistoryEvent]:
        """The history so far."""
        with self._reading, self._path.open(encoding="utf-8") as file:
            file.seek(self._read_to)
            *lines, _ = file.read().split("\n")
            self._read_to += sum(len(line) + 1 for line in lines)  # nothing but ASCII is in it
            self._events += map(parse_line, lines)
            self._ended += sum(line.startswith("E") for line in lines)
            return list(self._events)

    def ended(self) -> int:
        """How many runs have ended well."""
        self.events()
        return self._ended

    def log(self) -> str:
        """What the workers say."""
        return (self._folder / "workers.log").read_text()

    def goes_on(self) -> None:
        """Wait until calls are accepted and end that were not there before."""
        accepted, ended = len(self.accepted), self.ended()
        wait_until(lambda: self._trouble or len(self.accepted) > accepted, self.log)
        wait_until(lambda: self._trouble or self.ended() > ended + MOST // 10, self.log)
        assert not self._trouble, self._trouble

    def missing(self) -> list[str]:
        """What was accepted, and is not there though nobody has run it."""
        accepted = {each.job for each in list(self.accepted)}
        there = snapshot(self._app.broker, [("orders", key) for key in KEYS])
        done = {
            event.job for event in self.events() if event.what == "E"
        }  # read last: whatever was not there had ended before
        return [finding for finding in conservation(accepted, done, there) if "was accepted" in finding]

    # -- what came of it ---------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """Let everything run to its end, end the workers, and check."""
        self._stop.set()
        self._producer.join(PATIENCE_S)
        assert not self._producer.is_alive(), "It waits for an answer."
        assert not self._trouble, self._trouble
        stats = self._app.broker.inspect.stats
        wait_until(lambda: not any(each.length + each.busy for each in stats()), self.log, 2 * PATIENCE_S)
        assert [process.poll() for process in self._workers] == [None] * len(self._workers), self.log()
        for process in self._workers:
            process.terminate()
        assert {process.wait(PATIENCE_S) for process in self._workers} == {0}, self.log()
        return check(self._app, self.accepted, self.events())

    def repeats(self) -> int:
        """Runs of what had begun before."""
        return repeats(self.events())

    def close(self) -> None:
        """End all that is left."""
        self._stop.set()
        self._producer.join()
        for process in self._workers:
            process.kill()
            process.wait()
        self._app.close()


@contextmanager
def load(folder: Path, url: str, *, workers: int = 2) -> Iterator[Load]:
    """A load that has begun; nothing of it is left afterwards."""
    running = Load(folder, url, workers)
    try:
        running.goes_on()
        yield running
    finally:
        running.close()
