"""Program whose jobs write a line when they start and when they end. The file survives a kill."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from laneway import Context, Laneway, Worker
from laneway.config import WorkerOptions
from laneway.logs import LineHandler

app = Laneway()
_history = os.open(os.environ["HISTORY"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)


def note(*words: object) -> None:
    os.write(_history, (" ".join(map(str, words)) + "\n").encode())


@app.task(context=True)
def work(context: Context, number: int, takes_s: float = 0.0) -> None:
    note("S", number, context.attempt)
    time.sleep(takes_s)
    note("E", number, context.attempt)


@app.task(context=True)
def parent(context: Context, number: int, children: int) -> None:
    note("S", f"parent-{number}", context.attempt)
    for child in range(children):
        context.enqueue(work, number * 1000 + child)
    note("E", f"parent-{number}", context.attempt)


@app.task(context=True)
def stuck(context: Context) -> None:
    note("S", "stuck", context.attempt)
    threading.Event().wait(600)


if __name__ == "__main__":
    options = WorkerOptions(
        concurrency=4,
        lease_s=1.0,
        until_empty="--until-empty" in sys.argv,
        shutdown_timeout_s=float(os.environ.get("SHUTDOWN_TIMEOUT", "25")),
    )
    app.logger.addHandler(LineHandler())
    app.logger.setLevel(logging.INFO)
    sys.exit(Worker(app, options).run())
