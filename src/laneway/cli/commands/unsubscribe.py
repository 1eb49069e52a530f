"""`laneway unsubscribe`: ends the subscription of a listener's queue. Only this command ends subscriptions."""

from __future__ import annotations

import click

from ...app import Laneway
from ...errors import ConfigError
from ...events.event import Subscription
from .. import options
from ..act import confirm
from ..findings import is_of_app, living, waiting
from ..output import clean, count, show_json
from ..target import find_queues, load_imports, open_target


@click.command(
    epilog=options.examples(
        "laneway unsubscribe shop.py order_created --source orders",
        "laneway unsubscribe shop.py day_began                 a generic event",
        "laneway unsubscribe shop.py order_created --source orders --destination old_shop",
        "laneway unsubscribe shop.py --queue old_shop-eventboss-orders-order_created-prod",
        "laneway check shop.py                                 names subscriptions that nobody listens to",
    )
)
@options.target
@click.argument("event", required=False)
@click.option("--source", metavar="APP", help="Who publishes the event; a generic one has none.")
@click.option("--destination", metavar="APP", help="Whose listener it was, if not this app's.")
@click.option("-Q", "--queue", metavar="QUEUE", help="The listener's queue, instead of EVENT: whatever it gets.")
@options.together(options.yes, options.url, options.as_json)
def unsubscribe(
    target: str,
    event: str | None,
    source: str | None,
    destination: str | None,
    queue: str | None,
    yes: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """End the subscription of a listener's queue.

    Remove the listener from the code first: a worker that has it subscribes again when it starts, and within ten
    minutes while it runs. What is in the queue stays there. Events that are published from now on do not get there: so
    it asks first if a living worker serves the queue, or if the app has no such listener, because then it may be that
    of another environment or version.
    """
    found = open_target(target, url)
    app = found.app
    try:
        load_imports(app)
        queue, topics = _meant(app, event, source, destination, queue)
        find_queues(app, app.broker)
        listens = app.registry.listener_of(queue)
        doubts = [] if listens is not None else [_stranger(app, found.text)]
        if any(queue in worker.queues for worker in living(app.broker) or ()):
            doubts.append("a living worker serves it")
        left = waiting(app.broker, queue)
        if doubts:
            _ask(queue, topics, " and ".join(doubts), left, yes)
        ended = [topic for topic in topics if app.broker.events.unsubscribe(topic, queue)]
        if not ended:  # another process has ended it in the meantime
            raise _not_subscribed(app, queue, " or ".join(topics))
    finally:
        app.close()
    if as_json:
        show_json({"topics": ended, "queue": queue, "waiting": left, "listens": listens is not None})
        return
    click.echo(clean(f"The queue {queue} gets no more of {', '.join(ended)}."))
    if listens is not None:
        still = (
            f"{found.text} still listens to it ({listens.name}): remove that, or a worker that has it "
            "subscribes it again."
        )
        click.echo(clean(still), err=True)
    elif left:
        there = (
            f"{count(left, 'job')} of it are still there; laneway jobs --queue {queue} lists them, and a worker with "
            f"the old code, -Q {queue} and --no-subscribe runs them."
        )
        click.echo(clean(there), err=True)


def _meant(
    app: Laneway, event: str | None, source: str | None, destination: str | None, queue: str | None
) -> tuple[str, list[str]]:
    """The queue to unsubscribe, and the topics to unsubscribe it from."""
    if (event is None) is (queue is None) or (queue is not None and (source or destination)):
        raise ConfigError("Give EVENT, with --source and --destination if it has them, or --queue alone.")
    if queue is not None:
        topics = [each.topic for each in app.broker.events.subscriptions() if each.queue == queue]
        if not topics:
            raise _not_subscribed(app, queue, "anything")
        return queue, topics
    assert event is not None
    owner = destination or app.name
    if owner is None:
        raise ConfigError("Whose listener was it? Give the app a name, Laneway(name=…), or give --destination.")
    topic, queue = app.names.topic(event, source), app.names.queue(owner, event, source)
    if not any(each.queue == queue for each in app.broker.events.subscriptions(topic)):
        raise _not_subscribed(app, queue, topic)
    return queue, [topic]


def _not_subscribed(app: Laneway, queue: str, what: str) -> ConfigError:
    known: list[Subscription] = is_of_app(app, app.broker.events.subscriptions())
    there = f"there is {', '.join(each.queue for each in known)}" if known else "nor has this app any other"
    return ConfigError(f"The queue {queue} is not subscribed to {what}; {there}.")


def _stranger(app: Laneway, target: str) -> str:
    """A phrase that says that the app does not have this listener, and what that may mean."""
    env = f"env={app.env}" if app.env else "no env"
    return f"{target}, with {env}, has no listener for it, though another environment or version of it may"


def _ask(queue: str, topics: list[str], doubts: str, left: int, yes: bool) -> None:
    stay = (
        f"{count(left, 'job')} {'waits' if left == 1 else 'wait'} there and will stay"
        if left
        else "Nothing waits there"
    )
    confirm(
        clean(
            f"Of the queue {queue}: {doubts}. {stay}; what is published to {', '.join(topics)} from now on will not "
            "get there. End that subscription?"
        ),
        yes,
        unasked=f"The queue {queue} is still subscribed: {doubts}. There is no terminal to ask at; say --yes if its "
        "subscription is to end.",
    )
