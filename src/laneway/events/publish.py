"""Publisher makes one job per subscribed queue; EventSender sends to one queue.

All jobs of an event are stored or none. The broker is asked for the subscriptions each time, so that a subscription
counts as soon as it exists. A broker that makes the copies itself, as SNS does, gets one job for the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from ..config import name_problem
from ..enqueue.options import EnqueueOptions
from ..enqueue.pipeline import EnqueuePipeline
from ..errors import ConfigError, EnqueueError, LanewayError, report_unstored_items
from ..handle import Handle
from ..ids import RunIds, new_id
from ..jobs.data import EventCopy, NewJob
from ..tasks.signature import UnstorableValueError, ValueCodec, encode, has_fields
from ..telemetry import EventsPublished
from .attributes import bytes_of, checked, texts_of
from .event import Attribute, Attributes, EventNames, copy_key
from .filters import passes
from .names import parts_problem, queue_problem, topic_problem


class EventJobs(msgspec.Struct):
    """Events as they go to the broker."""

    topic: str
    #: Of the events, in order.
    ids: list[str]
    #: Their copies: those of one event stand together.
    jobs: list[NewJob]


class Publisher(EnqueuePipeline):
    """The part of an app that publishes."""

    name: str | None
    names: EventNames
    #: The topics of which it was told that nobody has subscribed to them.
    _unheard: set[str]

    def publish(self, event: str, value: Any, *, generic: bool = False, attributes: Attributes | None = None) -> str:
        """Publish an event: whoever has subscribed gets a copy. Once this has returned, they are stored.

        Nobody may have: that is no error. Returns the event's id.

        Args:
            event: Its name. The source in the topic's name is this app's.
            value: What the listeners get: plain JSON values, a dataclass, a Struct or a pydantic model.
            generic: Publish it without a source, for those who listen to such events of any app.
            attributes: Texts, numbers and lists of texts, five at most: what filters go by. Listeners find them in
                `context.headers`.
        """
        return self._publish(self.published(event, [value], generic=generic, attributes=attributes))[0]

    def publish_many(
        self, event: str, values: Iterable[Any], *, generic: bool = False, attributes: Attributes | None = None
    ) -> list[str]:
        """Publish an event for each value, all checked before any is stored. Returns their ids.

        Each event is stored whole; many are stored together on SQLite, on Redis and AWS step by step. If storing fails
        midway, the error's `unstored` has the places of the values that were not published.
        """
        return self._publish(self.published(event, values, generic=generic, attributes=attributes, many="publish_many"))

    def sender(self, event: str, destination: str, *, generic: bool = False) -> EventSender:
        """Sends values of an event to the listener of one app alone, whether or not it has subscribed."""
        source = self._source(event, generic)
        queue = self.names.queue(destination, event, source)
        if problem := name_problem("destination", destination) or queue_problem(queue):
            raise EnqueueError(f"Event {event}: {problem}")
        return EventSender(self, event, queue)

    def published(
        self,
        event: str,
        values: Iterable[Any],
        *,
        generic: bool = False,
        attributes: Attributes | None = None,
        ids: RunIds | None = None,
        many: str = "",
    ) -> EventJobs:
        """Make the jobs for events; raises an error for what cannot be published, and nothing is stored.

        `ids` makes their ids, instead of chance; `many` is what was called, if it takes a list.
        """
        topic = self._topic(event, generic)
        given = checked(attributes, f"Event {event}")
        bodies = self.bodies(event, values, given, many)
        beside = encode(given).decode() if given else ""  # one value with two attributes is two events, in any order
        found = [new_id() if ids is None else ids(topic, beside, body) for body in bodies]
        if self.broker.capabilities.relays:
            jobs = [
                NewJob(
                    queue=topic,
                    key=id,
                    body=body,
                    event=EventCopy(id, topic, to_topic=True, attributes=given or None),
                )
                for id, body in zip(found, bodies, strict=True)
            ]
            return EventJobs(topic, found, jobs)
        queues = self._queues(topic, given) if bodies else []
        texts = texts_of(given)
        jobs = [
            NewJob(
                queue=queue,
                key=copy_key(event.id, queue),
                body=body,
                event=event,
                headers={**texts} or None,
            )
            for event, body in zip([EventCopy(id, topic) for id in found], bodies, strict=True)
            for queue in queues
        ]
        return EventJobs(topic, found, jobs)

    def bodies(self, event: str, values: Iterable[Any], attributes: Attributes, many: str = "") -> list[str]:
        """Values as they are stored, with these attributes beside each.

        If they were given as `many`, the error names the one that was refused.
        """
        made: list[str] = []
        beside = bytes_of(attributes)
        what = "Event {}: its value, with its attributes," if attributes else "Event {}: its value"
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise EnqueueError(f"Event {event}: {many} takes a list of values, not {type(values).__name__}.")
        try:
            for value in values:
                body = _encoded(event, value)
                self.check_body(body, what, event, beside)
                made.append(body)
        except EnqueueError as error:
            if not many:
                raise
            raise EnqueueError(f"Item {len(made)}: {error} Nothing was stored.") from error.__cause__
        return made

    def _publish(self, events: EventJobs) -> list[str]:
        if events.jobs:
            places = {event: place for place, event in enumerate(events.ids)}
            items = {id(job): places[job.event_id] for job in events.jobs}
            try:
                self.around_enqueue(events.jobs, self.store)
            except LanewayError as error:
                report_unstored_items(error, events.jobs, items)
                raise
        else:
            self.report_without_listeners(events)
        return events.ids

    def report_without_listeners(self, events: EventJobs) -> None:
        """Tell whoever listens of events that nobody gets: there is nothing to be stored, now or later."""
        if self._published and events.ids:
            self.telemetry.emit(EventsPublished(events.topic, len(events.ids), 0))

    def _queues(self, topic: str, attributes: dict[str, Attribute]) -> list[str]:
        """The queues that get an event with these attributes."""
        subscriptions = self.broker.events.subscriptions(topic)
        if not subscriptions and topic not in self._unheard:
            self._unheard.add(topic)
            self.logger.warning(
                "nobody has subscribed to %s: what is published there reaches no one until a worker that has a "
                "listener for it starts, or laneway subscribe is run",
                topic,
            )
        return [each.queue for each in subscriptions if passes(each.filter, attributes)]

    def _source(self, event: str, generic: bool) -> str | None:
        """The source in the names of what this app publishes."""
        if self.name is None:
            raise ConfigError(
                "Publishing needs the app's name, which is the source of its events; give it as Laneway(name=…)."
            )
        if not isinstance(generic, bool):
            raise EnqueueError(f"Event {event}: generic must be True or False, not {generic!r}.")
        if problem := parts_problem(event):
            raise EnqueueError(f"An {problem}")
        return None if generic else self.name

    def _topic(self, event: str, generic: bool) -> str:
        topic = self.names.topic(event, self._source(event, generic))
        if problem := topic_problem(topic):
            raise EnqueueError(f"Event {event}: {problem}")
        return topic


class EventSender:
    """`app.sender(…)`: sends values of an event straight into one listener's queue, as plain jobs."""

    __slots__ = ("_app", "_sending", "event", "queue")

    def __init__(self, app: Publisher, event: str, queue: str, sending: EnqueueOptions | None = None) -> None:
        self._app = app
        self._sending = sending or EnqueueOptions()
        self.event = event
        #: Where it sends to.
        self.queue = queue

    def send(self, value: Any, *, attributes: Attributes | None = None) -> Handle:
        """Store one job with this value."""
        return self._send([value], attributes)[0]

    def send_many(self, values: Iterable[Any], *, attributes: Attributes | None = None) -> list[Handle]:
        """Store a job for each value, all checked before any is stored."""
        return self._send(values, attributes, "send_many")

    def using(
        self,
        *,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        group: str | None = None,
        cancellable: bool | None = None,
    ) -> EventSender:
        """The same with options for what is sent through it, as for a task; used again, it adds to them."""
        sending = self._sending.with_options(delay=delay, perform_at=perform_at, group=group, cancellable=cancellable)
        return EventSender(self._app, self.event, self.queue, sending)

    def _send(self, values: Iterable[Any], attributes: Attributes | None, many: str = "") -> list[Handle]:
        given = checked(attributes, f"Event {self.event}")
        bodies = self._app.bodies(self.event, values, given, many)
        texts, options, event = texts_of(given), self._sending, EventCopy(attributes=given)
        return self._app.send(
            [
                NewJob(
                    queue=self.queue,
                    key=copy_key(new_id(), self.queue),  # so that it is known for a value where its listener is missing
                    body=body,
                    delay_s=options.delay_s,
                    perform_at=options.perform_at,
                    hints=options.hints,
                    headers={**texts} or None,
                    event=event,
                )
                for body in bodies
            ]
        )

    def __repr__(self) -> str:
        return f"<EventSender to {self.queue}>"


@lru_cache(256)
def _kind(kind: type) -> ValueCodec:
    """How values of a type are encoded: what has fields is checked by their types, all else must be plain JSON."""
    return ValueCodec(kind if has_fields(kind) else Any, "value", "a dataclass, a Struct or a model that holds them")


def _encoded(event: str, value: Any) -> str:
    kind: type = type(value)
    try:
        return _kind(kind).pack(value)
    except UnstorableValueError as error:
        raise EnqueueError(f"Event {event}: {error}.") from error.__cause__
