"""Program for worker processes that tests kill, stop and hang. Its runs write a line when they begin and end.

Environment variables:
- HISTORY is the file of the lines. SETTLED=1 also records settlements in it.
- IMPORT_S is how long the import takes.
- KEPT is a file name. If set, each process renews its own claims; while the file exists, renewals fail.
- STARTS is a file to which every child adds a byte when it starts. From start CRASH_FROM to start CRASH_TO the child
  then kills itself.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from laneway import Batch, Context, Key, Laneway, Middleware
from laneway.broker import Answer, Capabilities, Turn
from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Claim, Kind
from laneway.urls import Url, open_broker
from tests.support.history import History
from tests.support.recorder import RecordingBroker

history = History(os.environ.get("HISTORY", os.devnull))


class Taken:
    """Notes the settlements that the broker has taken, by job, with the token of their claim."""

    def turned(self, turn: Turn, answer: Answer) -> None:
        for settlement in turn.settlements:
            claim = settlement.claim
            if claim.key in answer.refused:
                history.note("R", claim.key, token=claim.token)
                continue
            finished = len(claim.payloads) if settlement.verdict == "done" else settlement.done
            for payload in claim.payloads[:finished]:
                job = payload.identity if claim.kind is Kind.KEYED else claim.key
                history.note("A", claim.key, job=job, token=claim.token)


def make_broker() -> Any:
    taken: Any = Taken()
    return RecordingBroker(open_broker(os.environ["LANEWAY_URL"]), taken)


class Kept(SQLiteBroker):
    """Claims are kept by whoever holds them, as on SQS; notes who has renewed."""

    capabilities = Capabilities(shared=True, holders_keep=True)

    def renew(self, worker: str, held: Any, before: int) -> None:
        if os.path.exists(os.environ["KEPT"]):  # noqa: PTH110 - as it is
            raise BrokerAwayError("it is out of reach")
        super().renew(worker, held, before)
        history.note("C", "renewed")


class Spoilt(Middleware):
    """A middleware that kills its process when it sees the body of one task."""

    def around_deserialization(self, body: str, claim: Claim) -> Iterator[None]:
        if '"spoils"' in body:
            history.note("S", claim.key, job=claim.key, attempt=claim.attempt, token=claim.token)
            history.note("K")
            os.kill(os.getpid(), signal.SIGKILL)
        yield


def middleware() -> list[Middleware]:
    return [Spoilt()] if os.environ.get("SPOILT") else []


on_sqs = os.environ.get("LANEWAY_URL", "").startswith("sqs:")
in_memory = os.environ.get("LANEWAY_URL") == "memory:"
if os.environ.get("SETTLED"):
    app = Laneway(broker=make_broker())
elif os.environ.get("KEPT"):
    app = Laneway(broker=Kept.from_url(Url.parse(os.environ["LANEWAY_URL"])))
else:
    app = Laneway(middleware=middleware())


def began(context: Context, seq: int = -1) -> None:
    history.note("S", context.key, seq, context.id, context.attempt, context.fence)


def ended(context: Context, seq: int = -1) -> None:
    history.note("E", context.key, seq, context.id, context.attempt, context.fence)


@app.task(context=True)
def work(context: Context, takes_s: float = 0.0) -> None:
    began(context)
    time.sleep(takes_s)
    ended(context)


@app.task(context=True, queue="orders")
def call(context: Context, key: Annotated[str, Key], seq: int, takes_s: float = 0.0) -> None:
    began(context, seq)
    time.sleep(takes_s)
    ended(context, seq)


@app.task(context=True, queue="orders")
def call_until(context: Context, key: Annotated[str, Key], seq: int, path: str) -> None:
    """Runs until there is such a file."""
    began(context, seq)
    while not os.path.exists(path):  # noqa: PTH110 - as it is
        time.sleep(0.01)
    ended(context, seq)


@app.task(context=True)
def spin(context: Context, takes_s: float) -> None:
    """Pure Python that never waits."""
    began(context)
    until = time.monotonic() + takes_s
    while time.monotonic() < until:
        pass
    ended(context)


@app.task(context=True)
def hold(context: Context, takes_s: float) -> None:
    """Code in C that does not let go of the interpreter. It is measured first, because machines differ."""
    began(context)
    count, quickest_s = 2_000_000, float("inf")
    for _ in range(5):
        start = time.perf_counter()
        deque(itertools.repeat(None, count), maxlen=0)
        quickest_s = min(quickest_s, time.perf_counter() - start)
    deque(itertools.repeat(None, int(count * takes_s / quickest_s)), maxlen=0)
    ended(context)


@app.task(context=True)
def stuck(context: Context) -> None:
    began(context)
    threading.Event().wait(600)


@app.task(context=True, isolation=None if in_memory else "process")
def stuck_apart(context: Context) -> None:
    began(context)
    threading.Event().wait(600)


@app.task(context=True)
def family(context: Context, own_session: bool = False) -> None:
    """Starts a process that outlives it, and waits; its id is the line's."""
    began(context)
    process = subprocess.Popen(["sleep", "600"], start_new_session=own_session)
    history.note("C", context.key, pid=process.pid)
    process.wait()


def end(context: Context, how: str, seq: int = -1) -> None:
    if how == "SystemExit":
        history.note("F", context.key, seq, context.id, context.attempt, context.fence)
        sys.exit(7)
    history.note("K")
    if how == "exit":
        os._exit(0)
    os.kill(os.getpid(), getattr(signal, how))
    threading.Event().wait()  # another thread may be the one that gets the signal, a little later


@app.task(context=True, queue="poison")
def die(context: Context, how: str) -> None:
    began(context)
    end(context, how)


@app.task(context=True, queue="orders")
def die_keyed(context: Context, key: Annotated[str, Key], seq: int, how: str) -> None:
    began(context, seq)
    end(context, how, seq)


def gather(context: Context, batch: Batch[str]) -> None:
    began(context)
    for how in (payload for payloads in batch.values() for payload in payloads if payload):
        end(context, how)
    ended(context)


if not on_sqs:  # there are no collecting tasks there
    app.collect(context=True)(gather)


class ExitsWhenShown(Exception):
    def __str__(self) -> str:
        os._exit(5)


@app.task(context=True, queue="poison")
def meddle(context: Context, how: str) -> None:
    """Does to its process what no job should."""
    began(context)
    if how == "garbage":
        for fd in range(3, 40):
            try:
                with socket.socket(fileno=os.dup(fd)) as one:
                    if one.family == socket.AF_UNIX:
                        one.send(b'{"no": "message"}\n\xff not even text\n', socket.MSG_DONTWAIT)
            except OSError:
                continue
    elif how == "exec":
        history.note("K")
        os.execvp("sleep", ["sleep", "600"])
    elif how.startswith("close"):
        numbers, _, then = how.removeprefix("close ").partition(", then ")
        first, _, last = numbers.partition("-")
        history.note("K")
        os.closerange(int(first), int(last) + 1)
        if then == "wait":
            threading.Event().wait(600)
        return
    elif how == "error":
        history.note("K")
        raise ExitsWhenShown
    elif how == "stop":
        history.note("K")
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait(600)
    elif how == "fork and return":
        forked_pid = os.fork()
        if not forked_pid:
            return
        os.waitpid(forked_pid, 0)
    elif how == "fork":
        fork = multiprocessing.get_context("fork")
        ready = fork.Event()  # Python forgets a signal that comes while it forks
        forked = fork.Process(target=lambda: (ready.set(), threading.Event().wait(600)))
        forked.start()
        assert ready.wait(30)
        forked.terminate()
        forked.join(30)
        assert forked.exitcode == -signal.SIGTERM, forked.exitcode
    ended(context)


@app.task(context=True, queue="poison", isolation=None if in_memory else "process")
def meddle_apart(context: Context) -> None:
    """Closes the descriptors of a process of its own, and goes on as if nothing had happened."""
    began(context)
    logs = [os.open(os.devnull, os.O_WRONLY) for _ in range(20)]
    history.note("K")
    os.closerange(3, 256)
    with suppress(BrokerAwayError):
        work.enqueue()
    for log in logs:
        with suppress(OSError):
            os.write(log, b"a line of the log, longer than the header of a database " * 4)


@app.task(queue="poison")
def spoils() -> None: ...


grown: list[bytes] = []


@app.task(context=True)
def grow(context: Context, mebibytes: int) -> None:
    began(context)
    grown.append(b"\1" * (mebibytes * 1_048_576))
    time.sleep(0.1)
    ended(context)


def start() -> None:
    path = os.environ.get("STARTS")
    if path is None:
        return
    with open(path, "ab") as file:  # noqa: PTH123 - as it is
        file.write(b".")
        file.flush()
        number = file.tell()
    if int(os.environ.get("CRASH_FROM", "1")) <= number <= int(os.environ.get("CRASH_TO", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    if number == int(os.environ.get("FAIL_AT", "0")):
        raise RuntimeError("the pump is not primed")


app.on_start = start
history.note("C", "imported")
time.sleep(float(os.environ.get("IMPORT_S", "0")))
