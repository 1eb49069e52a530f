"""BrokerHolder opens the app's broker; EnqueuePipeline runs the middleware and stores jobs.

The broker is opened on first use, under a lock: two threads must not open two brokers. A task that the broker cannot
serve is refused: when it is declared, or when the broker is opened. `close` lets go of files and connections; using
the app opens them again.

Jobs reach the pipeline complete. It adds headers from telemetry subscribers, checks jobs again after a middleware,
and reports stored jobs to telemetry.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..broker import complete
from ..brokers.shared import check_jobs
from ..errors import EnqueueError, LanewayError, report_unstored_items
from ..handle import Handle, PayloadHandle
from ..jobs.data import Kind, NewJob
from ..jobs.merge import identity_of
from ..jobs.shards import DEFAULT_SHARDS
from ..middleware import Middleware, overriding, surround
from ..tasks.registry import Registry, owner
from ..telemetry import Enqueueing, EventsPublished, JobsEnqueued, Telemetry
from ..unsupported import ensure_supported
from ..urls import declared_capabilities, open_broker, resolve_url, without_secrets
from .options import EnqueueOptions

if TYPE_CHECKING:
    from ..broker import Broker, CoreBroker
    from ..tasks.task import AnyTask


class BrokerHolder:
    """The part of an app that has its broker."""

    registry: Registry

    def __init__(self, url: str | None, broker: CoreBroker | None) -> None:
        self._given_url = url
        self._broker = self._given_broker = None if broker is None else complete(broker)
        self._opening = threading.Lock()
        self._development = False
        #: Queues that were seen to be there.
        self._made: set[str] = set()

    @property
    def url(self) -> str:
        """The broker's URL as it may be printed."""
        if self._given_broker is not None:
            return type(self._given_broker).__name__
        return without_secrets(resolve_url(self._given_url)[0])

    @property
    def full_url(self) -> str | None:
        """The broker's URL with its secrets, for another process of this app; None if it was made with a broker."""
        return None if self._given_broker is not None else resolve_url(self._given_url)[0]

    @property
    def broker(self) -> Broker:
        """The broker; opened when it is first used."""
        if self._broker is None:
            with self._opening:  # two threads must not open two brokers: what is in memory would be in one of them
                if self._broker is None:
                    self._broker = self._opened(*resolve_url(self._given_url))
        return self._broker

    @property
    def development(self) -> bool:
        """Whether what is missing is made by whoever needs it; a broker that cares is told."""
        return self._development

    @development.setter
    def development(self, on: bool) -> None:
        changed, self._development = on is not self._development, on
        if changed and self._broker is not None:
            self._set_auto_create(self._broker)

    def _opened(self, url: str, source: str = "the url given") -> Broker:
        """The broker of a URL, if it can serve the tasks that are declared."""
        broker = open_broker(url, source)
        try:
            ensure_supported(broker.capabilities, self.registry)
        except BaseException:
            broker.close()
            raise
        if self._development:
            self._set_auto_create(broker)
        return broker

    def _set_auto_create(self, broker: Broker) -> None:
        if broker.capabilities.has("health"):
            broker.health.auto_create = self._development

    def use(self, url: str) -> None:
        """Move the app to another broker than the one it was made with: for tests, and for `--url`."""
        broker = self._opened(url)
        self.close()
        self._given_url, self._given_broker, self._broker = url, None, broker
        self._made.clear()

    def close(self) -> None:
        """Let go of the broker's files and connections; using the app opens them again."""
        if self._broker is not None:
            self._broker.close()

    def ensure_supported(self, task: AnyTask) -> None:
        """Raise DeclarationError for a task that the broker cannot serve; for that it need not be opened."""
        if self._broker is not None:
            ensure_supported(self._broker.capabilities, [task])
        elif (can := declared_capabilities(resolve_url(self._given_url)[0])) is not None:
            ensure_supported(can, [task])


What = TypeVar("What")


class EnqueuePipeline(BrokerHolder):
    """The part of an app that hands jobs to its broker."""

    logger: logging.Logger

    def __init__(self, url: str | None, broker: CoreBroker | None, middleware: Sequence[Middleware]) -> None:
        super().__init__(url, broker)
        self.telemetry = Telemetry()
        self._enqueueing = self.telemetry.of(Enqueueing)
        self._enqueued = self.telemetry.of(JobsEnqueued)
        self._published = self.telemetry.of(EventsPublished)
        self._around_enqueue = overriding(middleware, "around_enqueue")

    def all_or_none(self, make: Callable[[What], NewJob], items: Iterable[What]) -> list[NewJob]:
        """Make a job of every item; the error names the item that was refused, and nothing has been stored."""
        jobs: list[NewJob] = []
        try:
            for item in items:
                jobs.append(make(item))
        except EnqueueError as error:
            raise EnqueueError(f"Item {len(jobs)}: {error} Nothing was stored.") from error.__cause__
        return jobs

    def send(self, jobs: list[NewJob]) -> list[Handle]:
        """Store jobs, inside the middleware."""
        broker = self.broker
        all_jobs = jobs.copy()  # a middleware may take some out of the list
        if jobs:
            try:
                self.around_enqueue(jobs, self.store)
            except LanewayError as error:
                report_unstored_items(error, jobs, {id(job): place for place, job in enumerate(all_jobs)})
                raise
        plain = Kind.PLAIN  # here and not in `handle_on`: a call for each of a million jobs would be felt
        return [
            Handle(broker, job.queue, job.key) if job.kind is plain else PayloadHandle(broker, job) for job in all_jobs
        ]

    def store(self, jobs: list[NewJob]) -> None:
        """Have the broker store jobs, and tell whoever listens."""
        queue = jobs[0].queue if jobs and jobs[0].kind is Kind.COLLECTING else None
        if queue is not None and queue not in self._made:
            # The first job would make it with as many shards as a queue has that nobody has declared.
            self.broker.declare(queue, self.shards_of(queue))
            self._made.add(queue)
        self.broker.enqueue(jobs)
        if self.reports_enqueued:
            self.report_enqueued(jobs)

    def shards_of(self, queue: str) -> int:
        """The shards that a queue is made with; once it is made, the broker knows how many it has."""
        task = self.registry.collector_of(queue)
        return DEFAULT_SHARDS if task is None else task.options.shards

    def report_enqueued(self, jobs: Collection[NewJob]) -> None:
        """Tell whoever listens that these are stored."""
        if self._enqueued:
            for queue, count in Counter(job.queue for job in jobs if not job.to_topic).items():
                self.telemetry.emit(JobsEnqueued(queue, count))
        if self._published:
            copies: dict[str, list[NewJob]] = {}
            for job in jobs:
                if job.event is not None and job.event.topic:
                    copies.setdefault(job.event.topic, []).append(job)
            for topic, of_topic in copies.items():
                made = None if of_topic[0].to_topic else len(of_topic)
                self.telemetry.emit(EventsPublished(topic, _events_in(of_topic), made))

    @property
    def reports_enqueued(self) -> bool:
        """Whether somebody listens to what is stored."""
        return bool(self._enqueued or self._published)

    def _ask_for_headers(self, jobs: list[NewJob]) -> None:
        """Have whoever listens give jobs headers, before they are stored or held back; once for an event."""
        places: dict[str, list[NewJob]] = {}
        for job in jobs:
            places.setdefault((job.event.topic if job.event else "") or job.queue, []).append(job)
        for place, together in places.items():
            published = bool(together[0].event_id)
            event = Enqueueing(place, _events_in(together) if published else len(together), {}, published)
            self.telemetry.emit(event)
            if event.headers:
                for job in together:
                    if job.kind is not Kind.COLLECTING:
                        job.headers = {**event.headers, **(job.headers or {})}

    def around_enqueue(self, jobs: list[NewJob], store: Callable[[list[NewJob]], None]) -> bool:
        """Have `store` called inside the middleware; False if one of them did not call on."""
        if not self._around_enqueue:
            if self._enqueueing:
                self._ask_for_headers(jobs)
            store(jobs)
            return True

        before = {id(job): (job.queue, job.body) for job in jobs}

        def step() -> None:
            for job in jobs:
                queue, body = before.get(id(job), (None, None))
                self.check_body(job.body, "After the middleware the body of the job {}", job.key)
                EnqueueOptions().with_options(queue=job.queue)
                if job.kind is not Kind.COLLECTING:
                    if job.queue != queue:  # those that are where they were made for belong there
                        self.ensure_ticket_queue(job.queue, "After the middleware the job {}", job.key)
                elif job.body is not body:
                    job.identity = identity_of(job.body)  # another payload than it was
            check_jobs(jobs)
            if self._enqueueing:
                self._ask_for_headers(jobs)
            store(jobs)

        reached, _ = surround(self._around_enqueue, (jobs,), step)
        if not reached:
            self.logger.warning("a middleware did not call on: %d jobs were not enqueued", len(jobs))
        return reached

    def ensure_ticket_queue(self, queue: str, what: str, name: str = "") -> None:
        """See that a queue is for tickets; `what` is put together only for an error."""
        if task := self.registry.owner_of(queue):
            others = "" if task.kind is Kind.COLLECTING else ", or send a value with app.sender(…)"
            raise EnqueueError(
                f"{what.format(name)} cannot go to the queue {queue}, which belongs to {owner(task)} alone; give "
                f"another queue{others}."
            )

    def check_body(self, body: str, what: str, name: str = "", beside: int = 0) -> None:
        """See that a broker can store a body with so many bytes beside it; `what` is put together only for an error."""
        if not isinstance(body, str):
            raise EnqueueError(f"{what.format(name)} must be text, not {type(body).__name__}.")
        limit = self.broker.capabilities.max_body
        if len(body) + beside <= limit and body.isascii():
            return
        try:
            size = len(body.encode()) + beside
        except UnicodeEncodeError:
            raise EnqueueError(f"{what.format(name)} holds half of a surrogate pair; give valid Unicode.") from None
        if size > limit:
            raise EnqueueError(
                f"{what.format(name)} is {size} bytes, and this broker takes {limit} at most; store the data "
                "elsewhere and enqueue where it is."
            )


def _events_in(copies: Iterable[NewJob]) -> int:
    return len({job.event_id for job in copies})
