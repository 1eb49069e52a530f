"""Private test servers that speak AWS's protocols, on free ports of 127.0.0.1; they end with the tests.

`FakeServer` is the fake in a thread of the test process, `FakeProcess` is the fake in its own process, and
`MotoServer` is moto. All of them are a `Place`. The fixtures are in `conftest`.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.error import URLError

from tests.support.aws.endpoints import ACCOUNT, ENVIRONMENT, INDEX, REGION, Place
from tests.support.aws.fake.server import FakeServer
from tests.support.servers import LAUNCHER, free_port, wait_until

__all__ = ["ACCOUNT", "ENVIRONMENT", "INDEX", "REGION", "FakeProcess", "FakeServer", "MotoServer", "Place"]

_ROOT = Path(__file__).parents[3]


class Process(Place):
    """A server that is a Python module, run with a port, in a process that ends with the tests'."""

    module: ClassVar[str]
    #: What is asked to see whether it answers.
    _probe: ClassVar[str]

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process that writes to it)
        command = [sys.executable, "-m", self.module, str(port)]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [*launcher, *command],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            cwd=_ROOT,
        )
        atexit.register(self.end)

    @classmethod
    def start(cls) -> Self:
        """A new server that answers."""
        for _ in range(10):
            server = cls(free_port())
            try:
                wait_until(lambda server=server: not server.alive() or server._answers(), server._said)
            except BaseException:
                server.end()
                raise
            if server.alive():
                return server
            said = server._said()
            server.end()
            # Else somebody who looked for a free port at the same moment took it.
            assert "in use" in said, said
        raise AssertionError("No port was free long enough to be taken.")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """End it at once. No harm if it has ended."""
        self.forget_clients()
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(self.end)
            process.kill()
            process.communicate()
            self._log.close()

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Ask the server itself, not AWS's part of it."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def _answers(self) -> bool:
        try:
            self.ask(self._probe)
        except (URLError, OSError):
            return False
        return True

    def _said(self) -> str:
        self._log.seek(0)
        return f"{self.module} says:\n{self._log.read().decode(errors='replace')}"


class MotoServer(Process):
    """moto's server. It becomes slow with deep queues: keep them under 200 messages."""

    module = "tests.support.aws.moto_server"
    _probe = "/moto-api/data.json"

    def reset(self) -> None:
        """Forget all queues, tables and topics."""
        self.ask("/moto-api/reset", method="POST")


class FakeProcess(Process):
    """The fake as a process of its own, which shares no interpreter with those who load it."""

    module = "tests.support.aws.fake"
    _probe = "/fake/requests"

    def reset(self) -> None:
        """Forget all queues, tables, topics, requests, faults and denials."""
        self.ask("/fake/reset", {})

    def set(self, **values: Any) -> None:
        """Faults (`duplicates`, `reordered`, `misses`, `seed`), `page_items` and `denied` (a list of names)."""
        self.ask("/fake/set", values)

    @property
    def requests(self) -> Counter[str]:
        return Counter(self.ask("/fake/requests"))

    @property
    def faults(self) -> dict[str, float]:
        """What was set, and how often it has happened."""
        return dict(self.ask("/fake/faults"))

    @property
    def lost(self) -> list[dict[str, str]]:
        """What was published and did not come into a queue that has subscribed."""
        return list(self.ask("/fake/lost")["lost"])
