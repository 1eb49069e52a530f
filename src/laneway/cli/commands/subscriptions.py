"""`laneway subscriptions`: lists which queues get which events."""

from __future__ import annotations

from typing import Any

import click

from .. import options
from ..output import Column, clean, patience, show_json, show_table
from ..target import load_imports, open_with_app

COLUMNS = (Column("topic"), Column("queue"), Column("listener"), Column("filter", cut=True))


@click.command(
    epilog=options.examples(
        "laneway subscriptions                         all that the broker knows",
        "laneway subscriptions shop.py                 and which of them shop.py listens to",
        "laneway subscriptions shop.py --json",
    )
)
@options.optional_target
@options.together(options.url, options.as_json)
def subscriptions(target: str | None, url: str | None, as_json: bool) -> None:
    """List which queues get which events.

    With TARGET its listeners are named, and those that are not subscribed yet.
    """
    with open_with_app(target, url) as place, patience("Reading"):
        stored = place.broker.events.subscriptions()
        listeners = {}
        if place.app is not None:
            load_imports(place.app)
            listeners = {(each.topic, each.queue): each for each in place.app.listeners()}
    rows: list[dict[str, Any]] = []
    for each in stored:
        listener = listeners.pop((each.topic, each.queue), None)
        name = None if listener is None else listener.name
        rows.append({"topic": each.topic, "queue": each.queue, "filter": each.filter, "listener": name})
    missing = [
        {"topic": each.topic, "queue": each.queue, "filter": each.filter, "listener": each.name}
        for each in listeners.values()
    ]
    if as_json:
        show_json({"subscriptions": rows, "missing": missing})
        return
    if rows:
        show_table(COLUMNS, [[row["topic"], row["queue"], row["listener"], _text(row["filter"])] for row in rows])
    else:
        click.echo("There are no subscriptions.")
    for row in missing:
        click.echo(
            clean(
                f"The queue {row['queue']} of {row['listener']} is not subscribed to {row['topic']} yet: a worker "
                "that serves it does so when it starts, and so does laneway subscribe."
            ),
            err=True,
        )


def _text(policy: Any) -> str | None:
    import msgspec

    return None if policy is None else msgspec.json.encode(policy).decode()
