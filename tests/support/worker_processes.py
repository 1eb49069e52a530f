"""Site: a database, a history and real `laneway worker` processes, for tests that kill, stop and hang them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from laneway import Laneway
from laneway.jobs.data import JobView, Kind, NewJob
from laneway.worker.process.tree import descendants
from tests.support.checkers import AcceptedCall, Snapshot, lost, out_of_order, overlap, repeats
from tests.support.history import History, HistoryEvent, parse_line

PROGRAM = Path(__file__).parent / "programs" / "worker_program.py"
#: How long a test waits for what must happen; long enough for a machine that is busy with something else.
PATIENCE_S = 60.0
LARGE = bool(os.environ.get("LANEWAY_CHAOS"))
QUEUES = ("default", "orders", "poison", "gather")
MARK = "LANEWAY_TEST_SITE"


class Server:
    """One `laneway worker` with its processes, and its log in a file."""

    def __init__(self, command: list[str], environ: dict[str, str], log: Path, **options: Any) -> None:
        self.path = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=environ, **{"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, **options}
            )
        self.pid = self.process.pid

    def children(self) -> list[int]:
        """The processes that run jobs, those that are about to included, the oldest first."""
        return [pid for pid in descendants(self.pid) if parent_of(pid) == self.pid]

    def child(self) -> int:
        """The only one."""
        (pid,) = self.children()
        return pid

    def serving(self, children: int = 1) -> Server:
        """Wait until so many have begun to take jobs."""
        wait_until(lambda: self.log().count(" started: ") >= children, self.log)
        return self

    def log(self) -> str:
        """What they have written."""
        return self.path.read_text()

    def signal(self, name: str) -> None:
        """Send one to the supervisor."""
        self.process.send_signal(getattr(signal, name))

    def ends(self) -> int:
        """Wait until it has ended, and return its exit code."""
        return self.process.wait(timeout=PATIENCE_S)

    def stop(self) -> int:
        """Tell it to, and wait."""
        self.signal("SIGTERM")
        return self.ends()


class Site:
    """A place for a test: a database, a history, and whatever was started there."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.database = folder / "jobs.db"
        self.url = url or f"sqlite:///{self.database}"
        self.history = History(folder / "history")
        self.app = Laneway(self.url)
        self.broker = self.app.broker
        for queue in QUEUES:
            self.broker.declare(queue, 5)
        self.accepted: list[AcceptedCall] = []
        self._mark = f"{MARK}={uuid4()}"
        self._servers: list[Server] = []
        self._read: list[HistoryEvent] = []
        self._read_to = 0

    # -- jobs --------------------------------------------------------------------------------------------

    def put(self, task: str, count: int = 1, *, queue: str = "default", **params: Any) -> list[str]:
        """Enqueue plain jobs, and return their keys."""
        keys = [f"{task}-{len(self.accepted) + number}" for number in range(count)]
        body = _ticket(task, params)
        self.broker.enqueue([NewJob(queue=queue, key=key, body=body) for key in keys])
        self.accepted += [AcceptedCall(key, -1, key) for key in keys]
        return keys

    def put_calls(
        self, keys: int, each: int, *, task: str = "call", prefix: str = "k", first: int = 0, **params: Any
    ) -> None:
        """Enqueue calls of several keys, those of each in order of their numbers."""
        numbers = [(seq, f"{prefix}{key}") for seq in range(first, first + each) for key in range(keys)]
        calls = [AcceptedCall(key, seq, f"{key}.{seq}") for seq, key in numbers]
        self.broker.enqueue(
            [
                NewJob(
                    queue="orders",
                    key=one.key,
                    kind=Kind.KEYED,
                    identity=one.job,
                    body=_ticket(task, {"key": one.key, "seq": one.seq, **params}, one.job),
                )
                for one in calls
            ]
        )
        self.accepted += calls

    def put_payload(self, key: str, value: str) -> None:
        """Enqueue a payload of the collecting task."""
        body = msgspec.json.encode(value).decode()
        self.broker.enqueue([NewJob(queue="gather", key=key, kind=Kind.COLLECTING, identity=value or "-", body=body)])

    # -- workers -----------------------------------------------------------------------------------------

    def environ(self, **environ: str) -> dict[str, str]:
        """What they are started with; it marks all that they start."""
        name, _, mark = self._mark.partition("=")
        told = {"LANEWAY_URL": self.url, "HISTORY": str(self.history.path), name: mark}
        return {**os.environ, **told, **environ}

    def command(self, *args: str) -> list[str]:
        """`laneway worker` with the program of these tests."""
        return [sys.executable, "-m", "laneway", "worker", f"{PROGRAM}:app", *args]

    def start(self, *args: str, options: dict[str, Any] | None = None, **environ: str) -> Server:
        """Start a worker."""
        log = self.folder / f"worker-{len(self._servers)}.log"
        server = Server(self.command(*args), self.environ(**environ), log, **options or {})
        self._servers.append(server)
        return server

    def until_empty(self, *args: str) -> None:
        """Have a worker run whatever is left."""
        server = self.start("--until-empty", *args)
        assert server.ends() == 0, server.log()

    def processes(self) -> list[int]:
        """All that the workers of this site have started, and they themselves, as long as they live."""
        mark = self._mark.encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes() and state_of(int(entry.name)) not in "ZX":
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End all that is left."""
        self.app.close()
        for server in self._servers:
            if server.process.poll() is None:
                server.process.kill()
        for pid in self.processes():
            kill(pid, signal.SIGKILL)
        for server in self._servers:
            server.process.wait(timeout=PATIENCE_S)
        self.history.close()

    # -- what happened -----------------------------------------------------------------------------------

    def events(self, what: str = "", key: str | None = None) -> list[HistoryEvent]:
        """The history, or those of its lines that begin so."""
        with self.history.path.open(encoding="utf-8") as file:
            file.seek(self._read_to)
            *lines, _ = file.read().split("\n")
        self._read_to += sum(len(line) + 1 for line in lines)  # nothing but ASCII is in it
        self._read += map(parse_line, lines)
        return [
            event
            for event in self._read
            if (not what or event.what in what) and (key is None or event.key == key) and event.key != "imported"
        ]

    def wait_for(self, count: int, what: str = "S", key: str | None = None) -> list[HistoryEvent]:
        """Until there are so many such lines."""
        wait_until(lambda: len(self.events(what, key)) >= count, self.logs)
        return self.events(what, key)

    def logs(self) -> str:
        """All that the workers have written."""
        return "\n".join(f"--- {server.pid}\n{server.log()}" for server in self._servers)

    def starts(self) -> Counter[str]:
        """How often each job has begun."""
        return Counter(event.job for event in self.events("S"))

    def attempts(self) -> set[int]:
        """Those that the runs were counted as."""
        return {event.attempt for event in self.events("S")}

    def dead(self) -> list[JobView]:
        """What lies in the morgue."""
        return [job for queue in QUEUES for job in self.broker.inspect.listing(queue, "dead").jobs]

    def left(self) -> int:
        """Jobs that are queued or running."""
        return sum(stats.length + stats.busy for stats in self.broker.inspect.stats())

    def repeats(self) -> int:
        """Runs of what had begun before."""
        return repeats(self.events())

    def findings(self) -> list[str]:
        """All that must never be, whatever happened."""
        return self.broken() + [finding.text for finding in self.broker.health.check()]

    def broken(self) -> list[str]:
        """The promises that were not kept, as the history has it."""
        events, dead = self.events(), self.dead()
        buried = [payload.identity or job.key for job in dead for payload in job.payloads]
        keyed = [event for event in events if event.seq >= 0 or event.what in "KP"]
        found = lost(self.accepted, events, Snapshot(dead=frozenset(buried)))
        return found + overlap(events) + out_of_order(keyed) + stale(events)


def stale(events: list[HistoryEvent]) -> list[str]:
    """A settlement was taken from a claim that was not the job's last, or two were."""
    latest: dict[str, int] = {}
    for event in events:
        if event.what == "S":
            latest[event.job] = max(latest.get(event.job, 0), event.token)
    taken = [event for event in events if event.what == "A"]
    found = [
        f"Job {event.job}: a settlement under token {event.token} was taken, though it ran under {latest[event.job]}."
        for event in taken
        if event.job in latest and event.token < latest[event.job]
    ]
    return found + [
        f"Job {job} was settled {n} times." for job, n in Counter(each.job for each in taken).items() if n > 1
    ]


def _ticket(task: str, params: dict[str, Any], call: str | None = None) -> str:
    ticket: dict[str, Any] = {"_job_class": task, "_job_params": params or None}
    if call is not None:
        ticket["_job_id"] = call
    return msgspec.json.encode(ticket).decode()


def wait_until(true: Callable[[], Any], log: Callable[[], str] = str, timeout_s: float = PATIENCE_S) -> float:
    """Look again and again until it is, and return how many seconds that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < timeout_s, f"It has not happened.\n{log()}"
        time.sleep(0.01)
    return time.monotonic() - began


def kill(pid: int, number: int) -> None:
    """Send a signal, if the process is there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def stop(pid: int) -> None:
    """Stop a process (SIGSTOP), and wait until it has stopped: until then it may begin another run."""
    kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) in "TZX")


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does; X if it is gone."""
    return (_stat(pid) or ["X"])[0]


def parent_of(pid: int) -> int:
    """Its parent's id; 0 if it is gone."""
    return int((_stat(pid) or ["X", "0"])[1])


def alive(pid: int) -> bool:
    """Whether it still can do anything."""
    return state_of(pid) not in "ZX"


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return None
