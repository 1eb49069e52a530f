"""From what stands on the command line to an app or a broker.

Looking never makes a database: a mistyped path would otherwise look like an empty queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..app import Laneway
from ..broker import Broker
from ..capabilities import is_found
from ..errors import ConfigError
from ..urls import Url, open_broker, resolve_url, without_secrets
from .target import Target, load, load_imports


def open_target(text: str, url: str | None) -> Target:
    """Load a target; `url` outranks what its app was made with."""
    target = load(text)
    if url is not None:
        target.app.use(url)
    return target


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs are kept, and the app that knows what they mean if one was named."""

    broker: Broker
    app: Laneway | None


@contextmanager
def opening(target: str | None, url: str | None) -> Iterator[Place]:
    """The place to look into: of the target's app, of the URL, or of LANEWAY_URL and its like."""
    app = None
    if target is not None:
        app = open_target(target, url).app
        broker, where = app.broker, app.url
    else:
        text, source = resolve_url(url)
        if Url.parse(text).scheme == "memory":
            raise ConfigError("Jobs in memory: are inside the process that made them; give the URL of another broker.")
        broker, where = open_broker(text, source), without_secrets(text)
    try:
        if (path := database_of(broker)) and is_missing(path):
            raise ConfigError(f"There is no database {path} ({where}); a worker or the first job makes it.")
        if app is not None:
            find_queues(app, broker)
        yield Place(broker, app)
    finally:
        broker.close()


@contextmanager
def looking(target: str | None, url: str | None) -> Iterator[Broker]:
    """The broker alone, where nothing depends on the app."""
    with opening(target, url) as place:
        yield place.broker


def find_queues(app: Laneway, broker: Broker) -> None:
    """Have a broker that cannot list its queues look for those of the app."""
    if not hasattr(broker, "exists"):
        return
    with contextlib.suppress(ConfigError):  # what could be loaded is better than nothing; `check` says more
        load_imports(app)
    for queue in app.queues():
        is_found(broker, queue)


def database_of(broker: Broker) -> Path | None:
    """The file of a SQLite broker."""
    from ..brokers.sqlite import SQLiteBroker

    return broker.path if isinstance(broker, SQLiteBroker) else None


def is_missing(path: Path) -> bool:
    """Whether there is no such file; what may not be looked at counts as there, and opening it says what is wrong."""
    try:
        return not path.exists()
    except OSError:
        return False


def known_queues(broker: Broker, wanted: str | None) -> list[str]:
    """Every queue of the broker, or the one that is wanted if it is among them."""
    queues = list(broker.queues())
    if wanted is None:
        return queues
    if wanted not in queues and not is_found(broker, wanted):
        raise ConfigError(unknown_queue(wanted, queues))
    return [wanted]


def unknown_queue(name: str, known: list[str]) -> str:
    """The sentence for a queue that does not exist."""
    return (
        f"There is no queue {name!r}; there is {', '.join(known)}."
        if known
        else f"There is no queue {name!r}, nor any other."
    )
