"""App whose tasks run in isolated processes, which import it from here. Runs write to a journal file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from laneway import Batch, Context, Key, Laneway, Middleware

#: Where the tasks note what they do; what is started in another process inherits it.
JOURNAL = "LANEWAY_TEST_JOURNAL"


def note(*words: object) -> None:
    """Append a line, in one write, so that it survives whatever comes next."""
    fd = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, " ".join(map(str, words)).encode() + b"\n")
    finally:
        os.close(fd)


def noted() -> list[str]:
    path = Path(os.environ[JOURNAL])
    return path.read_text().splitlines() if path.exists() else []


class Around(Middleware):
    """Notes what it surrounds, and where."""

    def around_deserialization(self, body, claim):
        if "surrounded" in body:
            note("reading", os.getpid())
        yield

    def around_execution(self, call, context):
        try:
            yield
        except Exception as error:
            if os.environ.get("LANEWAY_TEST_SEES"):
                note("middleware saw", type(error).__name__)
            raise


def handler(error: BaseException, context: Context) -> None:
    if os.environ.get("LANEWAY_TEST_SEES"):
        note("handler saw", type(error).__name__, context.task, os.getpid())


def started() -> None:
    if os.environ.get("LANEWAY_TEST_FAILS_TO_START"):
        raise RuntimeError("there is no bank to talk to")


app = Laneway(middleware=[Around()], error_handlers=[handler], on_start=started)


@app.task(isolation="process")
def where(number: int) -> None:
    note("ran", number, os.getpid())


@app.task(isolation="fresh")
def alone(number: int) -> None:
    note("ran", number, os.getpid())


@app.task(isolation="process")
def surrounded() -> None:
    note("ran", os.getpid())


@app.task(isolation="process")
async def where_async(number: int) -> None:
    await asyncio.sleep(0)
    note("ran", number, os.getpid())


@app.task
def here(number: int) -> None:
    note("here", number, os.getpid())


@app.task(isolation="process", context=True, max_retry_count=0)
def sends(context: Context, ending: str) -> None:
    context.enqueue(here, 1)
    context.logger.info("a line of %s", ending)
    if ending == "raises":
        raise ValueError("no \udc80 good")
    if ending == "dies":
        end("SIGKILL")


@app.task(isolation="process")
def keyed(key: Annotated[str, Key], number: int, ending: str = "") -> None:
    note("ran", key, number)
    if ending == "fails once" and noted().count(f"ran {key} {number}") == 1:
        raise ValueError("once")
    if ending and ending != "fails once":
        end(ending)


@app.task
def keyed_here(key: Annotated[str, Key], number: int, ending: str = "") -> None:
    note("here", key, number, os.getpid())
    if ending:
        end(ending)


@app.task(max_retry_count=0)
def dies(ending: str) -> None:
    note("ran", os.getpid())
    end(ending)


@dataclass
class Noted:
    """A value that notes where it is read."""

    number: int

    def __post_init__(self) -> None:
        note("read", os.getpid())


@app.task
def reads(value: Noted) -> None:
    note("ran", os.getpid())


@app.task
def reads_keyed(key: Annotated[str, Key], value: Noted) -> None:
    note("ran", os.getpid())


@app.task(isolation="process", max_retry_count=0)
def dies_apart(ending: str) -> None:
    note("ran", os.getpid())
    end(ending)


@app.task(isolation="process", max_retry_count=0)
async def dies_apart_async(ending: str) -> None:
    note("ran", os.getpid())
    await asyncio.sleep(0)
    end(ending)


@app.task(time_limit=0.5, max_retry_count=0)
def too_long(how: str) -> None:
    note("began", os.getpid())
    if how == "spins":
        while True:
            pass
    if how == "starts another":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note("child", child.pid)
    if how == "starts one in a group of its own":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        note("child", child.pid)
    time.sleep(600)


@app.task(time_limit=timedelta(minutes=5))
def quick() -> None:
    note("ran", os.getpid())


@app.task(time_limit=0.2, isolation="process", max_retry_count=0)
async def too_long_async(how: str) -> None:
    note("began", os.getpid())
    if how == "blocks":
        time.sleep(600)
    try:
        await asyncio.sleep(600)
    finally:
        note("cancelled")


@app.task(isolation="process")
def waits(number: int) -> None:
    note("began", number, os.getpid())
    while "go on" not in noted():
        time.sleep(0.005)
    note("ended", number)


@app.task(isolation="process", max_retry_count=0)
def forks() -> None:
    """Leaves a process behind that has inherited everything, and dies."""
    if os.fork():
        note("ran", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@app.task(isolation="process")
def leaves_a_thread() -> None:
    threading.Thread(target=threading.Event().wait).start()
    note("ran", os.getpid())


@app.task(isolation="process")
def hoards() -> None:
    HOARD.append(bytearray(os.urandom(1_000)) * 100_000)
    note("ran", os.getpid())


HOARD: list[bytearray] = []


@app.collect(isolation="process", batch_size=3, shards=1, max_retry_count=0)
def gather(batch: Batch[int]) -> None:
    note("batch", os.getpid(), *sorted(batch))
    if "dies" in batch:
        end("SIGKILL")
    if "fails" in batch:
        batch.fail("fails", "it says so")


@app.collect(isolation="process", batch_size=3, shards=1, context=True)
def gather_and_send(context: Context, batch: Batch[int]) -> None:
    context.enqueue(here, len(batch))


@app.collect(batch_size=3, shards=1)
def gather_here(batch: Batch[int]) -> None:
    note("batch", *sorted(batch))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def end(ending: str) -> None:
    """End this process in one of the ways there are."""
    if ending == "os._exit":
        os._exit(0)
    if ending == "sys.exit":
        sys.exit(7)
    if ending == "KeyboardInterrupt":
        raise KeyboardInterrupt
    if ending == "GeneratorExit":
        raise GeneratorExit
    if ending == "unprintable":
        raise Unprintable
    if ending == "descriptors":
        os.closerange(3, 256)
        return
    if ending == "abort":
        os.abort()
    os.kill(os.getpid(), signal.Signals[ending])
    time.sleep(600)
