"""`laneway pause`: stops starting jobs from a queue until `laneway resume`. Holds both commands."""

from __future__ import annotations

from collections.abc import Callable

import click

from ...broker import Broker
from .. import WRONG, options
from ..output import clean
from ..target import open_without_app, unknown_queue

queues = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)


@click.command(
    epilog=options.examples(
        "laneway pause mail                            the mail server is being moved",
        "laneway pause mail orders --app shop.py",
        "laneway stats                                 says which queues are paused",
        "laneway resume mail",
    )
)
@queues
@options.together(options.app, options.url)
def pause(queues: tuple[str, ...], target: str | None, url: str | None) -> None:
    """Have nothing more of a queue begin, until it is resumed.

    What runs goes on to its end, and what is enqueued is kept. It holds for all workers, also those that are started
    later.
    """
    with open_without_app(target, url) as broker:
        act_on_queues(broker, queues, broker.operate.pause, done="is paused", already="is paused already")


@click.command(
    epilog=options.examples("laneway resume mail", "laneway resume mail orders --url sqlite:///laneway.db"),
)
@queues
@options.together(options.app, options.url)
def resume(queues: tuple[str, ...], target: str | None, url: str | None) -> None:
    """Have a paused queue go on. Idle workers begin at once."""
    with open_without_app(target, url) as broker:
        act_on_queues(broker, queues, broker.operate.resume, done="goes on", already="is not paused")


def act_on_queues(
    broker: Broker, names: tuple[str, ...], act: Callable[[str], bool], *, done: str, already: str
) -> None:
    """Call `act` for each queue and print the result. Exits with WRONG if a queue does not exist.

    A queue that is in the wanted state already is no error.
    """
    complaints: list[str] = []
    for name in dict.fromkeys(names):
        if broker.inspect.exists(name):
            click.echo(clean(f"The queue {name} {done if act(name) else already}."))
        else:
            complaints.append(unknown_queue(name, list(broker.inspect.queues())))
    for complaint in complaints:
        click.echo(clean(complaint), err=True)
    if complaints:
        raise click.exceptions.Exit(WRONG)
