"""Program whose calls write a line when they begin and end, and whose processes die on request.

HISTORY is the file of the lines, TAKES_S is how long a call takes. Each call sends another one to the queue that SENDS
names, if it names one. DEATHS is a folder of files named by number, place and count. A process takes one of them, and
kills itself with -9 when it has reached that failpoint so often. It records its own death first, because no other
process could know the time. Isolated processes die with it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from laneway import Context, Key, Laneway
from laneway.failpoints import armed, reach
from laneway.worker.process.tree import descendants
from tests.support.history import History

app = Laneway()
history = History(os.environ["HISTORY"])
takes_s = float(os.environ["TAKES_S"])
deaths = Path(os.environ["DEATHS"])
sends = os.environ.get("SENDS")


@app.task(context=True, queue="orders")
def work(context: Context, key: Annotated[str, Key], seq: int) -> None:
    run(context, key, seq)
    if sends:
        context.enqueue(follow, f"{key}-sent", seq)


@app.task(context=True, queue=sends or "orders")
def follow(context: Context, key: Annotated[str, Key], seq: int) -> None:
    run(context, key, seq)


def run(context: Context, key: str, seq: int) -> None:
    job = f"{key}#{seq}"
    history.note("S", key, seq, job, context.attempt, context.fence)
    if not armed:
        take_a_death()
    reach("mid job")
    time.sleep(takes_s)
    history.note("E", key, seq, job, context.attempt, context.fence)


def take_a_death() -> None:
    """Arm one failpoint of this process, if there is a death left to be died.

    When it starts, or later: a process that was killed from outside leaves its own death to others.
    """
    for planned in sorted(deaths.glob("[0-9]*-*")):
        taken = deaths / f"taken.{os.getpid()}.{planned.name}"
        try:
            planned.rename(taken)
        except FileNotFoundError:
            continue  # another process was quicker
        _, place, count = planned.name.split("-")
        die_at(place, int(count), taken)
        return


def die_at(place: str, count: int, taken: Path) -> None:
    left = iter(range(count - 1, -1, -1))

    def act() -> None:
        if next(left, 1) == 0:
            taken.rename(deaths / f"died.{place}.{os.getpid()}")
            for pid in descendants(os.getpid()):  # a call that two processes have died with runs in one of its own
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                history.note("K", pid=pid)
            history.note("K")
            os.kill(os.getpid(), signal.SIGKILL)

    armed[place] = act


app.on_start = take_a_death
