"""`laneway deadletter`: revives or deletes the dead letters of one listener, all of them or up to `--max`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from ...app import Laneway
from ...errors import ConfigError, LanewayError
from ...events.event import EventNames
from ...tasks.listener import Listener
from .. import GAVE_UP, options
from ..act import MorgueBulkAction, confirm, counted
from ..output import clean, count, show_json
from ..target import BrokerTarget, known_queues, load_imports, open_with_app

_options = options.together(
    click.argument("event", required=False),
    click.option("-Q", "--queue", metavar="QUEUE", help="The listener's queue, instead of EVENT."),
    click.option("--source", metavar="APP", help="Who publishes the event; a generic one has none."),
    click.option("--destination", metavar="APP", help="Whose listener it is; the app's own, if --app is given."),
    click.option("--max", "most", metavar="N", type=click.IntRange(1), help="No more than so many."),
)


@click.group(
    epilog=options.examples(
        "laneway deadletter reload order_created --source orders --app shop.py",
        "laneway deadletter purge order_created --source orders --app shop.py --max 100",
        "laneway morgue shop.py                        which there are, and why",
    ),
)
def deadletter() -> None:
    """Reload or purge the dead letters of a listener.

    They are the morgue of its queue, which is called {destination}-{infix}-{source}-{event}-{env}: infix and env are
    those of the app that --app names, else eventboss and LANEWAY_ENV; a generic event has no source, and without an env
    there is no end. Or give that name, with --queue. laneway stats lists the queues that there are.

    Only what was dead when the command began is touched: what dies again meanwhile
    stays there. Ctrl-C ends it after the step that is under way.
    """


@deadletter.command(
    epilog=options.examples(
        "laneway deadletter reload order_created --source orders --app shop.py",
        "laneway deadletter reload day_began --app shop.py     a generic event",
        "laneway deadletter reload order_created --source orders --destination shop --url redis://localhost",
        "laneway deadletter reload --queue shop-eventboss-orders-order_created-prod --url redis://localhost",
        "laneway deadletter reload order_created --source orders --app shop.py --max 10",
    ),
)
@_options
@options.together(options.app, options.url, options.as_json)
def reload(
    event: str | None,
    queue: str | None,
    source: str | None,
    destination: str | None,
    most: int | None,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Put dead letters back into the listener's queue.

    They are due now, with all their retries and all that came beside them.
    """
    with open_with_app(target, url) as place:
        queue = _queue(place, DeadLetterTarget(event, queue, source, destination))
        total = counted(place.broker, queue, "dead").get(queue, 0)
        run = MorgueBulkAction(place.broker, queue, revive=True, total=total, most=most)
        _carry_out(run, queue, total, "reloaded", as_json)


@deadletter.command(
    epilog=options.examples(
        "laneway deadletter purge order_created --source orders --app shop.py",
        "laneway deadletter purge order_created --source orders --app shop.py --max 100 --yes",
    ),
)
@_options
@options.together(options.yes, options.app, options.url, options.as_json)
def purge(
    event: str | None,
    queue: str | None,
    source: str | None,
    destination: str | None,
    most: int | None,
    yes: bool,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Delete dead letters for good. Asks first."""
    with open_with_app(target, url) as place:
        queue = _queue(place, DeadLetterTarget(event, queue, source, destination))
        total = counted(place.broker, queue, "dead").get(queue, 0)
        if total:
            confirm(f"Delete {count(min(total, most or total), 'dead letter')} of {queue} for good?", yes)
        run = MorgueBulkAction(place.broker, queue, revive=False, total=total, most=most)
        _carry_out(run, queue, total, "purged", as_json)


class DeadLetterTarget(NamedTuple):
    """The listener as given on the command line: by its event, or by its queue."""

    event: str | None
    queue: str | None
    source: str | None
    destination: str | None


def _queue(place: BrokerTarget, given: DeadLetterTarget) -> str:
    """The listener's queue; raises ConfigError if it does not exist."""
    event, queue, source, destination = given
    if (event is None) is (queue is None) or (queue is not None and (source or destination)):
        raise ConfigError("Give EVENT, with --source and --destination if it has them, or --queue alone.")
    app, broker = place.app, place.broker
    if app is not None:
        load_imports(app)
    if event is None:
        [found] = known_queues(broker, queue)
        return found
    names = EventNames(env=os.environ.get("LANEWAY_ENV") or None) if app is None else app.names
    destination = destination or (app.name if app else None)
    if destination is None:
        raise ConfigError("Whose listener is it? Give --app TARGET with the app's name, or --destination, or --queue.")
    queue = names.queue(destination, event, source)
    if not broker.inspect.exists(queue):
        raise ConfigError(f"There is no queue {queue!r}, where {destination} would listen to {event}; {_hint(app)}.")
    return queue


def _hint(app: Laneway | None) -> str:
    if app is None or not (listeners := app.listeners()):
        return (
            "say --source if the event has one, and --app if the app has an infix or an env; or see laneway stats for "
            "the queues that there are, and give one with --queue"
        )
    return f"the app listens to {', '.join(_in_words(each, app.name) for each in listeners)}"


def _in_words(listener: Listener[Any], name: str | None) -> str:
    """The command-line arguments that name a listener, for an app with this name."""
    source = f" --source {listener.source}" if listener.source else ""
    return f"{listener.event}{source}" + (
        f" --destination {listener.destination}" if listener.destination != name else ""
    )


def _carry_out(run: MorgueBulkAction, queue: str, total: int, what: str, as_json: bool) -> None:
    try:
        run.carry_out(what.capitalize())
    except LanewayError:
        if run.done:
            click.echo(clean(f"{what.capitalize()} {count(run.done, 'dead letter')} of {queue} so far."), err=True)
        raise
    if as_json:
        document = {"queue": queue, "found": total, what: run.done, "interrupted": run.interrupted}
        show_json({**document, "unseen": run.unseen, "ownerless": run.ownerless})
    elif total or run.done:
        click.echo(clean(f"{what.capitalize()} {count(run.done, 'dead letter')} of {queue}."))
    else:
        click.echo(clean(f"There are no dead letters of {queue}."))
    if not as_json:
        for sentence in _left(run, total):
            click.echo(clean(sentence), err=True)
    if run.interrupted or run.unseen:
        raise click.exceptions.Exit(GAVE_UP)


def _left(run: MorgueBulkAction, total: int) -> Iterator[str]:
    """Sentences about the dead letters that were left, and why."""
    if run.interrupted:
        yield "It was interrupted; the others are as they were."
    if run.ownerless:
        yield (
            f"{count(run.ownerless, 'message')} of the dead-letter queue, which is shared, were left as they are: "
            "nothing says whose they are."
        )
    if run.unseen:
        yield (
            f"{run.unseen:,} of the {total:,} that were counted when it began were not seen. They may be hidden, for "
            f"up to {run.hidden_s} s, by a receive whose answer was lost or by somebody else who looks at them, or "
            "were taken meanwhile; do it again then."
        )
