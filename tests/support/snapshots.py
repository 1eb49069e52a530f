"""Where a broker says that payloads are, for the checkers."""

from __future__ import annotations

from collections.abc import Iterable

from laneway.broker import Broker
from tests.support.checkers import Snapshot


def snapshot(broker: Broker, names: Iterable[tuple[str, str]]) -> Snapshot:
    """Every payload of these keys (queue, key) by its identity: a keyed call's is its own id.

    A key is looked at in one step, and one after the other; nothing must happen meanwhile that would move payloads from
    key to key, which nothing does.
    """
    places: dict[str, set[str]] = {"waiting": set(), "running": set(), "dead": set()}
    for queue, key in names:
        for view in broker.find(queue, key):
            place = view.status if view.status in ("running", "dead") else "waiting"
            places[place].update(payload.identity for payload in view.payloads)
    return Snapshot(*(frozenset(places[place]) for place in ("waiting", "running", "dead")))
