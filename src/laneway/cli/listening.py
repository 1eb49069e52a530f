"""Subscriptions and listeners held against each other: which listener gets no events, which queue nobody listens to.

Looks, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..app import Laneway
from ..broker import Broker
from ..capabilities import is_found, makes_queues
from ..errors import BrokerAwayError, BrokerError
from ..events.event import Subscription
from ..jobs.data import QueueStats, WorkerView
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


def waiting(broker: Broker, queue: str) -> int:
    """How many jobs are queued there, those included that are not due."""
    _find(broker, queue)
    return next((stats.length for stats in broker.stats() if stats.queue == queue), 0)


def living(broker: Broker) -> list[WorkerView] | None:
    """The workers that live; None where nobody keeps account of them."""
    try:
        return [worker for worker in broker.workers() if not worker.dead]
    except BrokerAwayError:
        raise
    except BrokerError:
        return None


def _find(broker: Broker, queue: str) -> None:
    """Look for a queue: else the numbers of the broker may leave it out. Whoever may not look goes without them."""
    try:
        is_found(broker, queue)
    except BrokerAwayError:
        raise
    except BrokerError:
        pass


def _wait(length: int) -> str:
    return f"{count(length, 'job')} {'waits' if length == 1 else 'wait'}"


def _ending(target: str, queue: str) -> str:
    return f"end that with laneway unsubscribe {target} --queue {queue}"


class Hearing:
    """What an app listens to, what it has subscribed to, and what of others' nobody seems to hear."""

    def __init__(self, app: Laneway, broker: Broker, workers: Iterable[WorkerView] | None) -> None:
        self._app = app
        self._listeners = app.listeners()
        self._stored: list[Subscription] = []
        self._unseen = ""
        #: The queues that a living worker serves; None where that is not known.
        self._served = None if workers is None else {queue for worker in workers for queue in worker.queues}
        #: Where queues are made by people the broker itself says what its listeners lack, and more of it. Nor does it
        #: know of all workers then.
        self._says_itself = not makes_queues(broker)
        if app.name is not None or self._listeners or not self._says_itself:
            try:
                self._stored = broker.subscriptions()
            except BrokerAwayError:
                raise
            except BrokerError as error:
                self._unseen = str(error)
        own = {*app.queues()}
        #: The subscriptions of this app's name that it has no listener for, by queue.
        self._unheard = {each.queue: each for each in of_this_app(app, self._stored) if each.queue not in own}
        for queue in self._unheard:
            _find(broker, queue)
        self._others: list[Subscription] = []
        if not self._says_itself and self._served is not None:
            apart = {*own, *self._served, *self._unheard}
            self._others = [each for each in self._stored if each.queue not in apart]

    @property
    def named(self) -> set[str]:
        """The queues of which it says itself what is to be done with what waits there."""
        return {*self._unheard, *(each.queue for each in self._others)}

    def findings(self, target: str, stats: Iterable[QueueStats]) -> Findings:
        """A sentence for each that has no counterpart."""
        if self._unseen and self._listeners:
            yield Finding("note", f"Subscriptions cannot be looked at: {self._unseen}")
        elif not self._unseen and not self._says_itself:
            yield from self._unsubscribed(target, self._served or ())
        lengths = {each.queue: each.length for each in stats}
        for queue, subscription in self._unheard.items():
            yield self._unheard_one(target, subscription, lengths.get(queue, 0))
        for subscription in self._others:
            if length := lengths.get(subscription.queue, 0):
                yield Finding(
                    "note",
                    f"The queue {subscription.queue} is subscribed to {subscription.topic}, {target} has no listener "
                    f"for it, and no worker serves it; {_wait(length)} there. Start the worker that has the listener; "
                    f"or, if there is none any more, {_ending(target, subscription.queue)}, and then drain it.",
                )

    def _unheard_one(self, target: str, subscription: Subscription, length: int) -> Finding:
        queue = subscription.queue
        text = f"The queue {queue} is subscribed to {subscription.topic}, and {target} has no listener for it"
        text += f"; {_wait(length)} there" if length else ""
        # With an env of its own only what ends like it is taken for this app's.
        others = "" if self._app.env else " to another environment (env=…, LANEWAY_ENV) or"
        if self._served is not None and queue in self._served:
            return Finding("note", f"{text}. A worker serves it, so it belongs{others} to another version of the app.")
        unserved = self._served is not None
        return Finding(
            "problem" if length and unserved else "note",
            f"{text}{', and no worker serves it' if unserved else ''}. Its listener was removed, or it belongs{others} "
            f"to another version of the app. Only if nobody is to hear it any more, {_ending(target, queue)}.",
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
