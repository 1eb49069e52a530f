"""`laneway unsubscribe`: have a listener's queue get no more events. The only way in which a subscription ends."""

from __future__ import annotations

import click

from ..errors import ConfigError
from . import options
from .listening import of_this_app, waiting
from .opening import find_queues, open_target
from .output import clean, count, show_json
from .target import load_imports


@click.command(
    epilog=options.examples(
        "laneway unsubscribe shop.py order_created --source orders",
        "laneway unsubscribe shop.py day_began                 a generic event",
        "laneway unsubscribe shop.py order_created --source orders --destination old_shop",
        "laneway check shop.py                                 names subscriptions that nobody listens to",
    )
)
@options.target
@click.argument("event")
@click.option("--source", metavar="APP", help="Who publishes the event; a generic one has none.")
@click.option("--destination", metavar="APP", help="Whose listener it was, if not this app's.")
@options.together(options.url, options.as_json)
def unsubscribe(
    target: str, event: str, source: str | None, destination: str | None, url: str | None, as_json: bool
) -> None:
    """End the subscription of a listener's queue.

    Remove the listener from the code first: a worker that has it subscribes again when it starts. What is in the queue
    stays there, so nothing is asked. Events that are published from now on do not get there.
    """
    found = open_target(target, url)
    app = found.app
    try:
        load_imports(app)
        owner = destination or app.name
        if owner is None:
            raise ConfigError("Whose listener was it? Give the app a name, Laneway(name=…), or give --destination.")
        topic, queue = app.names.topic(event, source), app.names.queue(owner, event, source)
        if not app.broker.unsubscribe(topic, queue):
            known = [each.queue for each in of_this_app(app, app.broker.subscriptions())]
            there = f"there is {', '.join(known)}" if known else "nor has this app any other"
            raise ConfigError(f"The queue {queue} is not subscribed to {topic}; {there}.")
        find_queues(app, app.broker)
        left = waiting(app.broker, queue)
        listens = app.registry.listener_of(queue)
    finally:
        app.close()
    if as_json:
        show_json({"topic": topic, "queue": queue, "waiting": left, "listens": listens is not None})
        return
    click.echo(clean(f"The queue {queue} gets no more of {topic}."))
    if listens is not None:
        click.echo(
            clean(
                f"{found.text} still listens to it ({listens.name}): remove that, or the next worker that starts "
                "subscribes it again."
            ),
            err=True,
        )
    elif left:
        click.echo(
            clean(f"{count(left, 'job')} of it are still there; laneway jobs --queue {queue} lists them."), err=True
        )
