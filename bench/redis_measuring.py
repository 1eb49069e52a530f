"""Shared by the Redis benchmarks: private servers, rates, and the CPU time of this process and the server.

A rate depends on the other load of the machine, the CPU time per job hardly does. Nothing here is specific to one
benchmark.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the servers that tests start

from tests.support.servers import RedisServer, servers


def parser_of(doc: str) -> argparse.ArgumentParser:
    """A parser with the option that all have; `doc` is the script's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=servers(), help="this one only; else every one that is installed")
    return parser


def started(only: str | None) -> Iterator[RedisServer]:
    """Each server in its turn, empty; it is gone when the next one comes."""
    for name, binary in servers().items():
        if only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                server = RedisServer.start(binary, Path(folder))
                try:
                    with server.client() as client:
                        info = client.info("server")
                    version = info.get("valkey_version", info["redis_version"])
                    print(f"\n{name} {version}, loopback", flush=True)
                    yield server
                finally:
                    server.end()


class Meter:
    """Seconds, and CPU seconds of this process and of the server, between `with` and its end."""

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()
        self.took_s = self.here_s = self.server_s = 0.0

    def __enter__(self) -> Meter:
        self._server_before = used_cpu_s(self._client)
        self._here_before = time.process_time()
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.took_s = time.perf_counter() - self._began
        self.here_s = time.process_time() - self._here_before
        self.server_s = used_cpu_s(self._client) - self._server_before
        self._client.close()

    def rate(self, count: int) -> float:
        return count / self.took_s

    def said(self, count: int) -> str:
        """For `count` of whatever was done."""
        return (
            f"{self.rate(count):9,.0f} a second   CPU of one: {1e6 * self.here_s / count:6.1f} µs here, "
            f"{1e6 * self.server_s / count:6.1f} µs in the server"
        )


def used_cpu_s(client: redis.Redis) -> float:
    info = client.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def round_trips(server: RedisServer, count: int = 5_000) -> Meter:
    """A client of redis-py that asks and waits, `count` times: what one of anything costs at least with it."""
    with server.client() as client:
        client.ping()
        with Meter(server) as meter:
            for _ in range(count):
                client.ping()
    return meter


def line(name: str, said: str) -> None:
    print(f"  {name:<44} {said}", flush=True)
