"""A program whose calls leave a line when they begin and when they end, and whose process kills itself when told to.

HISTORY is the file of the lines, TAKES_S is how long a call takes. DIE_AT=place:count has the process kill itself with
-9 when that failpoint is reached for the count-th time. It notes its own death first: nobody else could know when it
was.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated

from laneway import Context, Key, Laneway
from laneway.failpoints import armed, reach
from laneway.testing.history import History

app = Laneway()
history = History(os.environ["HISTORY"])
takes_s = float(os.environ["TAKES_S"])


@app.task(context=True, queue="orders")
def work(context: Context, key: Annotated[str, Key], seq: int) -> None:
    job = f"{key}#{seq}"
    history.note("S", key, seq, job, context.attempt, context.fence)
    if armed:
        reach("mid job")
    time.sleep(takes_s)
    history.note("E", key, seq, job, context.attempt, context.fence)


def die_at(place: str, count: int) -> None:
    """Arm one failpoint of this process."""
    left = iter(range(count - 1, -1, -1))

    def act() -> None:
        if next(left, 1) == 0:
            history.note("K")
            os.kill(os.getpid(), signal.SIGKILL)

    armed[place] = act


if "DIE_AT" in os.environ:
    place, _, count = os.environ["DIE_AT"].partition(":")
    die_at(place, int(count))
