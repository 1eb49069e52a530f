"""`laneway subscribe`: writes the subscriptions of all listeners of an app, without starting a worker."""

from __future__ import annotations

import click

from ...app import Laneway
from ...errors import BrokerRefusedError, ConfigError
from ...events.event import Subscription
from .. import UNWELL, options
from ..output import clean, patience, show_json
from ..target import load_imports, open_target


@click.command(
    epilog=options.examples(
        "laneway subscribe shop.py                     before the first worker of a new listener runs",
        "laneway subscribe shop.py --dry-run           what is missing",
        "laneway subscribe shop.jobs:app --url redis://localhost --json",
    )
)
@options.target
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
@options.together(options.url, options.as_json)
@click.pass_context
def subscribe(ctx: click.Context, target: str, dry_run: bool, url: str | None, as_json: bool) -> None:
    """Write the subscriptions of an app's listeners.

    A worker does so too when it starts, for those that it serves. From then on each listener's queue gets a copy of
    what is published, whether or not anybody serves it. It may be repeated. What cannot be subscribed is told, the
    others go on, and the command ends with 3.
    """
    app = open_target(target, url).app
    try:
        load_imports(app)
        listeners = app.listeners()
        if not listeners:
            raise ConfigError(f"{target} listens to nothing; declare a listener with @app.listener(event).")
        steps = []
        for listener in listeners:
            with patience("Subscribing"):
                level, text = _carry_out(app, listener.subscription, dry_run)
            steps.append({"level": level, "listener": listener.name, "text": text, **_place(listener.subscription)})
            if not as_json:
                click.echo(f"{level:<8} {clean(text)}")
    finally:
        app.close()
    if as_json:
        show_json({"steps": steps})
    ctx.exit(UNWELL if any(step["level"] == "problem" for step in steps) else 0)


def _place(subscription: Subscription) -> dict[str, str]:
    return {"topic": subscription.topic, "queue": subscription.queue}


def _carry_out(app: Laneway, wanted: Subscription, dry_run: bool) -> tuple[str, str]:
    """Write one subscription, or only look it up with `dry_run`. Returns a level and a sentence about the result."""
    try:
        if dry_run:
            return _look(app, wanted)
        made = app.broker.events.subscribe(wanted)
    except (BrokerRefusedError, ConfigError) as error:
        return "problem", str(error)
    return ("made", f"The queue {wanted.queue} is subscribed to {wanted.topic}.") if made else _is_there(wanted)


def _look(app: Laneway, wanted: Subscription) -> tuple[str, str]:
    stored = next((each for each in app.broker.events.subscriptions(wanted.topic) if each.queue == wanted.queue), None)
    if stored is None:
        return "missing", f"The queue {wanted.queue} is not subscribed to {wanted.topic}."
    if stored.filter != wanted.filter:
        return "missing", f"The queue {wanted.queue} is subscribed to {wanted.topic} with another filter."
    return _is_there(wanted)


def _is_there(wanted: Subscription) -> tuple[str, str]:
    return "ok", f"The queue {wanted.queue} is subscribed to {wanted.topic} already."
