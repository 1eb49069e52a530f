"""Processes that are killed with SIGKILL while they publish: `python -m tests.integration.redis.publisher`.

Each line of input is a URL, a number and a word. A new process publishes and is killed at the exchange with that
number, after half of its commands (`amid`) or all of them (`after`) have been carried out. The reply is `killed` or
`alive`. With `many` the process publishes a long list, and the reply is its process id: the caller must kill it and
then send a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from laneway.brokers.redis import RedisBroker, enqueue
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.client.server import Key, RedisClient, Server
from laneway.brokers.redis.settings import RedisSettings
from laneway.testing.conformance.events import copies
from laneway.urls import Url

HOWS: dict[str, Callable[[int], int]] = {
    "amid": lambda sent: sent // 2,
    "after": lambda sent: sent,
}
#: So many copies are stored in one step in the processes that are killed; that divides events, if something does.
CHUNK = 5
EVENTS, MANY = [f"event-{n}" for n in range(2)], 2_500


class Deadly(RedisClient):
    """A server, or a Cluster, of which one exchange is somebody's death."""

    def __init__(self, inner: RedisClient, at: int, how: str) -> None:
        self.inner = inner
        self.is_cluster, self.place = inner.is_cluster, inner.place
        self._left, self._through = at, HOWS[how]

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        self._left -= 1
        if self._left < 0:
            self.inner.exchange(commands[: self._through(len(commands))])
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.exchange(commands)

    def servers(self) -> list[Server]:
        return self.inner.servers()

    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> set[bytes]:
        return self.inner.wait(keys, timeout_s, unless)

    def nudge(self) -> None:
        self.inner.nudge()

    def close(self) -> None:
        self.inner.close()


class Publishers:
    """What makes the processes, as the tests see it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.integration.redis.publisher"]
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Publishers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def publish(self, url: str, at: int, how: str) -> bool:
        """Have a process publish EVENTS; says whether it was killed."""
        return self._ask(f"{url} {at} {how}") == "killed"

    @contextmanager
    def publishing_many(self, url: str) -> Iterator[None]:
        """Have a process publish MANY events, and kill it at the end."""
        publisher = int(self._ask(f"{url} 0 many"))
        try:
            yield
        finally:
            os.kill(publisher, signal.SIGKILL)  # nobody has waited for it yet, so that it is there
            self._ask("killed")

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def main() -> None:
    for line in sys.stdin:
        url, number, word = line.split()
        child = os.fork()
        if child == 0:
            _publish(RedisSettings.from_url(Url.parse(url), environ={}).open(), int(number), word)
            os._exit(0)
        if word == "many":
            print(child, flush=True)
            sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "alive", flush=True)


def _publish(server: RedisClient, at: int, word: str) -> None:
    if word == "many":
        RedisBroker(server).enqueue([copy for n in range(MANY) for copy in copies(f"event-{n}")])
        return
    enqueue.CHUNK = CHUNK
    RedisBroker(Deadly(server, at, word)).enqueue([copy for event in EVENTS for copy in copies(event)])


if __name__ == "__main__":
    main()
