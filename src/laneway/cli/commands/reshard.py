"""`laneway reshard`: changes a queue's shard count while the queue is in use.

Each step is a call of the broker, and any process may take the next step. This command takes steps until the change
is done and shows the progress. Workers take steps too, so ending this command does not stop the change.
"""

from __future__ import annotations

import signal
import time
from threading import Event

import click

from ...broker import Broker, ReshardProgress
from ...errors import ConfigError
from .. import GAVE_UP, options
from ..output import PATIENCE_S, ProgressBar, console, count, show_json
from ..target import known_queues, open_without_app

#: Seconds before asking again whether the running jobs have ended.
PAUSE_S = 0.1
#: A worker that was not seen for this many lease times is gone, even if no other worker was there to declare it dead.
LEASES = 2


@click.command(
    epilog=options.examples(
        "laneway reshard orders 24                     under load, with a progress bar",
        "laneway reshard orders 24 --app shop.py",
        "laneway reshard orders 24                     again: goes on where it was interrupted",
    ),
    # So that a negative number is not taken for an option, and gets its own error message.
    context_settings={"ignore_unknown_options": True},
)
@click.argument("queue")
@click.argument("shards", metavar="N", type=int)
@options.together(options.app, options.url, options.as_json)
def reshard(queue: str, shards: int, target: str | None, url: str | None, as_json: bool) -> None:
    """Change a queue's number of shards, under load.

    Workers may go on: they begin nothing of the queue until what runs has ended and all jobs have moved, and what is
    enqueued meanwhile is kept for then. It can be interrupted at any time, and resumed with the same N.
    """
    if shards < 1:
        raise ConfigError(f"A queue has at least 1 shard, so {shards} cannot be; give a whole number from 1 on.")
    with open_without_app(target, url) as broker:
        known_queues(broker, queue)
        old = broker.inspect.queues()[queue]
        # A flag, not an exception: an exception that is raised while Python runs a finalizer is lost.
        interrupted = Event()
        before = signal.signal(signal.SIGINT, lambda number, frame: interrupted.set())
        try:
            moved = _carry_out(broker, queue, shards, interrupted)
        except KeyboardInterrupt:
            click.echo(
                f"The queue {queue} is still being resharded to {shards}, and nothing of it begins until that is done: "
                f"workers go on with it, and so does laneway reshard {queue} {shards}.",
                err=True,
            )
            raise click.exceptions.Exit(GAVE_UP) from None
        finally:
            signal.signal(signal.SIGINT, before)
    if as_json:
        show_json({"queue": queue, "old_shards": old, "new_shards": shards, "moved": moved})
    elif old == shards:
        click.echo(f"The queue {queue} has {count(shards, 'shard')} already.")
    else:
        click.echo(f"The queue {queue} had {count(old, 'shard')} and has {shards:,} now; {count(moved, 'job')} moved.")


def _carry_out(broker: Broker, queue: str, shards: int, interrupted: Event) -> int:
    """Take steps until the change is done. Returns how many jobs have moved."""
    moved = 0
    waiting = ReshardWait(broker, queue, interrupted)
    with ProgressBar("Moving", 0) as bar:
        while True:
            step = broker.shards.reshard(queue, shards)
            moved = max(moved, step.moved)  # another process may take the last step, and only it gets the total
            if step.done:
                return moved
            if interrupted.is_set():
                raise KeyboardInterrupt
            if step.moved < step.total or not step.running:
                bar.update(step.moved, step.total, "Moving")
            else:
                bar.update(step.moved, step.total, f"Waiting for {count(step.running, 'running job')}")
                waiting.wait(step)


class ReshardWait:
    """Waits for running jobs. Says so once and, if no worker is alive to take the jobs back, says once what to do."""

    def __init__(self, broker: Broker, queue: str, interrupted: Event) -> None:
        self._interrupted = interrupted
        self._broker = broker
        self._queue = queue
        self._since: float | None = None
        self._said = self._warned = False

    def wait(self, step: ReshardProgress) -> None:
        """Wait a moment, and print the messages that are due."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= PATIENCE_S:
            if not self._said and not console(stderr=True).is_terminal:  # where there is no bar to say it
                click.echo(f"All jobs have moved; waiting for {count(step.running, 'running job')}.", err=True)
            self._said = True
            if not self._warned and not self._living():
                click.echo(
                    f"{count(step.running, 'job')} of {self._queue} belong to workers that are gone, and no worker is "
                    "there to take them back; start one with laneway worker TARGET, and this goes on.",
                    err=True,
                )
                self._warned = True
        self._interrupted.wait(PAUSE_S)

    def _living(self) -> bool:
        """Whether any worker is alive. Every worker takes back the claims of dead workers."""
        now = time.time()
        return any(
            not worker.dead and now - worker.seen_at < LEASES * worker.lease_s
            for worker in self._broker.inspect.workers()
        )
