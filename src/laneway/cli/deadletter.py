"""`laneway deadletter`: the dead letters of one listener, all of them put back or deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from ..abilities import is_found
from ..app import Laneway
from ..broker import Broker
from ..errors import ConfigError, LanewayError
from ..events import Names
from . import GAVE_UP, options
from .acting import confirm, counted
from .emptying import Emptying
from .opening import opening
from .output import clean, count, show_json
from .target import load_imports

_options = options.together(
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

    They are the morgue of its queue. Only what was dead when the command began is touched: what dies again meanwhile
    stays there. Ctrl-C ends it after the step that is under way.
    """


@deadletter.command(
    epilog=options.examples(
        "laneway deadletter reload order_created --source orders --app shop.py",
        "laneway deadletter reload day_began --app shop.py     a generic event",
        "laneway deadletter reload order_created --source orders --destination shop --url redis://localhost",
        "laneway deadletter reload order_created --source orders --app shop.py --max 10",
    ),
)
@click.argument("event")
@_options
@options.together(options.app, options.url, options.as_json)
def reload(
    event: str,
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
    with opening(target, url) as place:
        queue = _queue(place.broker, place.app, event, source, destination)
        total = counted(place.broker, queue, "dead").get(queue, 0)
        run = Emptying(place.broker, queue, revive=True, total=total, most=most)
        _carry_out(run, queue, total, "reloaded", as_json)


@deadletter.command(
    epilog=options.examples(
        "laneway deadletter purge order_created --source orders --app shop.py",
        "laneway deadletter purge order_created --source orders --app shop.py --max 100 --yes",
    ),
)
@click.argument("event")
@_options
@options.together(options.yes, options.app, options.url, options.as_json)
def purge(
    event: str,
    source: str | None,
    destination: str | None,
    most: int | None,
    yes: bool,
    target: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Delete dead letters for good. Asks first."""
    with opening(target, url) as place:
        queue = _queue(place.broker, place.app, event, source, destination)
        total = counted(place.broker, queue, "dead").get(queue, 0)
        if total:
            confirm(f"Delete {count(min(total, most or total), 'dead letter')} of {queue} for good?", yes)
        run = Emptying(place.broker, queue, revive=False, total=total, most=most)
        _carry_out(run, queue, total, "purged", as_json)


def _queue(broker: Broker, app: Laneway | None, event: str, source: str | None, destination: str | None) -> str:
    """The listener's queue, which must be there."""
    if app is not None:
        load_imports(app)
    names = Names(env=os.environ.get("LANEWAY_ENV") or None) if app is None else app.names
    destination = destination or (app.name if app else None)
    if destination is None:
        raise ConfigError("Whose listener is it? Give --app TARGET with the app's name, or --destination.")
    queue = names.queue(destination, event, source)
    if queue not in broker.queues() and not is_found(broker, queue):
        raise ConfigError(f"There is no queue {queue!r}, where {destination} would listen to {event}; {_hint(app)}.")
    return queue


def _hint(app: Laneway | None) -> str:
    listeners = app.listeners() if app is not None else []
    if not listeners:
        return "say --source if the event has one, and see laneway stats for the queues that there are"
    known = (f"{each.event}{f' --source {each.source}' if each.source else ''}" for each in listeners)
    return f"the app listens to {', '.join(known)}"


def _carry_out(run: Emptying, queue: str, total: int, what: str, as_json: bool) -> None:
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


def _left(run: Emptying, total: int) -> Iterator[str]:
    """What was not done, and why."""
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
