"""Measures the delivery of events from one publisher to listener processes: which events arrived, and how often.

Used by tests and by `bench/events.py`. The listener processes run `event_listener.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laneway import Laneway
from tests.support.servers import wait_until

_ROOT = Path(__file__).parents[2]
#: How long all of it may take on a busy machine, without anything new being heard.
PATIENCE_S = 60.0


class Listening:
    """One worker process that listens under a name of its own."""

    def __init__(self, name: str, url: str, folder: Path, fails: bool) -> None:
        self.name = name
        self._path, self._log = folder / f"{name}.heard", folder / f"{name}.log"
        path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        environment = {**os.environ, "LANEWAY_URL": url, "PYTHONPATH": path}
        command = [
            sys.executable,
            "-m",
            "tests.support.event_listener",
            name,
            str(self._path),
            *(["--fails"] if fails else []),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stderr=log)

    def lines(self, word: str) -> list[int]:
        """The numbers of the events that it wrote down with this word, in order."""
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines()
        return sorted(int(line.split()[1]) for line in lines if line.startswith(word))

    def count(self) -> int:
        """How many lines it has written; cheaper than reading them."""
        return self._path.read_bytes().count(b"\n") if self._path.exists() else 0

    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return f"{self.name}, which has ended with {self._process.poll()}:\n{self._log.read_text()}"

    def stop(self) -> int:
        """Have it end what it does; its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(60)
        finally:
            self._process.kill()


@contextmanager
def hearing(url: str, folder: Path, *, fails: bool = False) -> Iterator[tuple[Laneway, list[Listening]]]:
    """A publisher, the app `shop`, and two processes that have subscribed. The second one fails each event once, if it
    is told to."""
    app = Laneway(url, name="shop", development=True)
    listening = [Listening(name, url, folder, fails and name == "stock") for name in ("mailer", "stock")]
    try:
        topic = app.names.topic("placed", "shop")

        def subscribed() -> bool:
            dead = [each.log() for each in listening if not each.alive()]
            assert not dead, "\n".join(dead)
            return len(app.broker.events.subscriptions(topic)) == 2

        wait_until(subscribed, lambda: "\n".join(each.log() for each in listening))
        yield app, listening
    finally:
        codes = [each.stop() for each in listening]
        app.close()
    assert codes == [0, 0], "\n".join(each.log() for each in listening)


def wait_for(listening: list[Listening], counts: list[int]) -> None:
    """Wait until each has written so many lines."""
    best, since = -1, time.monotonic()
    while any(each.count() < count for each, count in zip(listening, counts, strict=True)):
        if (now := sum(each.count() for each in listening)) > best:
            best, since = now, time.monotonic()
        if time.monotonic() - since > PATIENCE_S:
            logs = "\n".join(each.log() for each in listening)
            raise AssertionError(f"{[each.count() for each in listening]} of {counts} were heard.\n{logs}")
        time.sleep(0.005)
