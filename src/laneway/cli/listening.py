"""Subscriptions and listeners held against each other: which listener gets no events, which queue nobody listens to.

Looks, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..abilities import is_found, makes_queues
from ..app import Laneway
from ..broker import Broker
from ..errors import BrokerAwayError, BrokerError
from ..events import Subscription
from ..job import QueueStats
from .findings import Finding, Findings
from .output import count


def of_this_app(app: Laneway, subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """Those whose queues carry the app's own name, infix and env: no other app's listener can have them."""
    if app.name is None:
        return []
    end = f"-{app.env}" if app.env else ""
    return [
        each
        for each in subscriptions
        if each.topic.startswith(f"{app.infix}-")
        and each.topic.endswith(end)
        and each.queue == f"{app.name}-{each.topic}"
    ]


def event_of(app: Laneway, topic: str) -> str:
    """What `laneway unsubscribe` may call the event of a topic. Its source, if it has one, is a part of that: where it
    ends cannot be told, and makes no difference."""
    event = topic.removeprefix(f"{app.infix}-")
    return event.removesuffix(f"-{app.env}") if app.env else event


def waiting(broker: Broker, queue: str) -> int:
    """How many jobs are queued there, those included that are not due."""
    is_found(broker, queue)
    return next((stats.length for stats in broker.stats() if stats.queue == queue), 0)


def _find(broker: Broker, queue: str) -> None:
    """Look for a queue: else the numbers of the broker may leave it out. Whoever may not look goes without them."""
    try:
        is_found(broker, queue)
    except BrokerAwayError:
        raise
    except BrokerError:
        pass


class Hearing:
    """What an app listens to, and what it has subscribed to."""

    def __init__(self, app: Laneway, broker: Broker) -> None:
        self._app = app
        self._listeners = app.listeners()
        self._stored: list[Subscription] = []
        self._unseen = ""
        if app.name is not None or self._listeners:
            try:
                self._stored = broker.subscriptions()
            except BrokerAwayError:
                raise
            except BrokerError as error:
                self._unseen = str(error)
        own = {listener.queue for listener in self._listeners}
        #: The subscriptions of this app that nobody listens to, by queue.
        self.unheard = {each.queue: each for each in of_this_app(app, self._stored) if each.queue not in own}
        #: Where queues are made by people the broker itself says what its listeners lack, and more of it.
        self._says_itself = not makes_queues(broker)
        for queue in self.unheard:
            _find(broker, queue)

    def findings(self, target: str, stats: Iterable[QueueStats], served: Collection[str]) -> Findings:
        """A sentence for each that has no counterpart. `served` are the queues that a living worker serves."""
        if self._unseen and self._listeners:
            yield Finding("note", f"Subscriptions cannot be looked at: {self._unseen}")
        elif not self._unseen and not self._says_itself:
            yield from self._unsubscribed(target, served)
        lengths = {each.queue: each.length for each in stats}
        for queue, subscription in self.unheard.items():
            length = lengths.get(queue, 0)
            there = f"; {count(length, 'job')} wait there" if length else ""
            yield Finding(
                "problem" if length and queue not in served else "note",
                f"The queue {queue} is subscribed to {subscription.topic}, and {target} has no listener for it{there}. "
                f"End that with laneway unsubscribe {target} {event_of(self._app, subscription.topic)}, or declare "
                "the listener.",
            )

    def _unsubscribed(self, target: str, served: Collection[str]) -> Findings:
        stored = {(each.topic, each.queue): each for each in self._stored}
        for listener in self._listeners:
            wanted = listener.subscription
            found = stored.get((wanted.topic, wanted.queue))
            if found is None and wanted.queue in served:
                yield Finding(
                    "problem",
                    f"The listener {listener.name} is not subscribed to {wanted.topic}, though a worker serves its "
                    f"queue {wanted.queue}; its log says why, and laneway subscribe {target} tries again.",
                )
            elif found is None:
                yield Finding(
                    "note",
                    f"The listener {listener.name} is not subscribed to {wanted.topic} yet; a worker that serves it "
                    f"does so when it starts, and so does laneway subscribe {target}.",
                )
            elif found.filter != wanted.filter:
                yield Finding(
                    "note",
                    f"The listener {listener.name} is subscribed to {wanted.topic} with another filter than it "
                    f"declares; the next worker that starts writes its own, and so does laneway subscribe {target}.",
                )
