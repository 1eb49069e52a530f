"""`SubscriptionDuty`: writes the subscriptions of the served listeners, and restores removed subscriptions.

The worker waits for the first round before it fetches, for a third of the lease at most, so that events that are
published after it reports its start reach it. A subscription that fails is reported once and retried; the other
subscriptions go on. Every ten minutes the duty writes missing subscriptions again. In these rounds it leaves a
changed filter alone: newer code may have written it. It never removes a subscription: another worker may serve that
listener. In development the broker first creates missing resources. With `--no-subscribe` the duty writes no
subscription and creates nothing for the listeners' queues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..errors import BrokerAwayError, LanewayError, NoQueueError
from ..events.event import Subscription
from ..telemetry import Subscribed, SubscriptionFailed

if TYPE_CHECKING:
    from ..app import Laneway

#: Seconds until a subscription that failed is tried again.
AGAIN_S = 60.0
#: Seconds between two checks that all subscriptions exist.
LOOK_AGAIN_S = 600.0
_LOOK_S = 0.02


class SubscriptionDuty:
    """A duty. Each round writes the subscriptions that are not known to exist. Some rounds first check all of them."""

    name = "writer of subscriptions"

    def __init__(self, app: Laneway, queues: Collection[str], *, write: bool = True) -> None:
        self._app = app
        self._all = {each.queue: each.subscription for each in app.listeners() if each.queue in queues}
        #: The queues for which the broker makes resources in development. Without `write` the queues of listeners are
        #: left out, because the broker would make their subscriptions too.
        self._queues = queues if write else [queue for queue in queues if queue not in self._all]
        if not write:
            self._all = {}
        self._lock = threading.Lock()
        self._left = dict(self._all)
        #: Whether the worker must still ask the broker to make missing resources.
        self._provides = app.development and app.broker.capabilities.has("health")
        #: The kind of error that was reported, for each queue; under "" if a resource could not be made.
        self._told: dict[str, type[Exception]] = {}
        #: The warnings that were logged about resources that differ from what they should be.
        self._warned: set[str] = set()
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        self._tried = threading.Event()
        #: Set by `Duties`: starts the next round within this many seconds.
        self.sooner: Callable[[float], None] = lambda seconds: None

    @property
    def is_needed(self) -> bool:
        """Whether it has anything to do at all."""
        return bool(self._all) or self._provides

    def wait(self, timeout_s: float, unless: Callable[[], bool]) -> None:
        """Wait until the first round has ended or `unless()`, for `timeout_s` at most. The duty goes on by itself."""
        until = time.monotonic() + timeout_s
        while not self._tried.wait(_LOOK_S) and time.monotonic() < until and not unless():
            pass

    def again(self) -> None:
        """Write all subscriptions again, soon: the broker may have been emptied."""
        with self._lock:
            self._left = dict(self._all)
        self.sooner(0.0)

    def round(self) -> float:
        """Write the subscriptions that are left. Returns the seconds until the next round."""
        try:
            if time.monotonic() >= self._look_at:
                self._look()
            self._provide()
            self._subscribe()
        finally:
            self._tried.set()
        with self._lock:
            return AGAIN_S if self._left or self._provides else max(0.0, self._look_at - time.monotonic())

    def _look(self) -> None:
        """Find out which subscriptions are gone, with a read for each topic.

        A subscription that cannot be checked is written again. If that fails, it is reported.
        """
        self._look_at = time.monotonic() + LOOK_AGAIN_S
        self._provides = self._app.development and self._app.broker.capabilities.has("health")
        there: set[tuple[str, str]] = set()
        try:
            for topic in dict.fromkeys(each.topic for each in self._all.values()):
                there |= {(each.topic, each.queue) for each in self._app.broker.events.subscriptions(topic)}
        except LanewayError:
            pass
        with self._lock:
            self._left |= {queue: each for queue, each in self._all.items() if (each.topic, each.queue) not in there}

    def _provide(self) -> None:
        if not self._provides:
            return
        try:
            for provided in self._app.broker.health.provide(self._app, self._queues):
                if provided.made:
                    self._app.logger.info("%s", provided.text)
                elif provided.text not in self._warned:
                    self._warned.add(provided.text)
                    self._app.logger.warning("%s", provided.text)
            self._provides = False
        except LanewayError as error:
            if self._is_news("", error):
                self._app.logger.error("what is missing could not be made, trying again: %s", error)

    def _subscribe(self) -> None:
        with self._lock:
            left = list(self._left.values())
        away: LanewayError | None = None
        failed: dict[str, list[str]] = {}
        for subscription in left:
            error = away or self._write(subscription)
            if error is None:
                continue
            if isinstance(error, NoQueueError):
                continue  # the queue's fetcher reports it, once for all processes
            if isinstance(error, BrokerAwayError):
                away = error  # to call it for each of the other subscriptions would take long
            if self._is_news(subscription.queue, error):
                failed.setdefault(str(error), []).append(subscription.queue)
        for text, queues in failed.items():
            self._app.telemetry.emit(SubscriptionFailed(queues, text))

    def _write(self, subscription: Subscription) -> LanewayError | None:
        try:
            made = self._app.broker.events.subscribe(subscription)
        except LanewayError as error:
            return error
        with self._lock:
            self._left.pop(subscription.queue, None)
        if self._told.pop(subscription.queue, None) is not None or made:
            self._app.telemetry.emit(Subscribed(subscription.topic, subscription.queue))
        return None

    def _is_news(self, queue: str, error: Exception) -> bool:
        """Whether to report this kind of error. Not its text: if the error stays, that may differ each time."""
        before = self._told.get(queue)
        self._told[queue] = type(error)
        return before is not type(error)
