"""DevelopmentBroker: the AWS broker with an operator who makes what is missing, and with a worker's duties.

The conformance suite expects a queue to be made by its first use, and has no threads that do the duties of a worker.
All else is the broker's own: `wait`, `nudge`, `renew` and the tiers are not touched, but for what is named below.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

from laneway.broker import Answer, Duty, Turn
from laneway.brokers.aws.admin.create import create_resources
from laneway.brokers.aws.admin.needs import QueueRequirement
from laneway.brokers.aws.admin.resources.queues import queue_attributes
from laneway.brokers.aws.admin.resources.resource import Creation
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.sqs.intake import MOMENT_S
from laneway.brokers.aws.sqs.turn import LEASE_S
from laneway.brokers.shared import check_shards, check_subscription
from laneway.clock import Clock
from laneway.events.event import Subscription
from laneway.jobs.data import NewJob, QueueStats, WorkerView
from tests.support.aws.fake.messages import Message
from tests.support.aws.fake.server import FakeServer
from tests.support.servers import wait_until


class DevelopmentBroker(AWSBroker):
    """Makes queues, tables and topics on first use, and does its duties when they are due by its clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._making = threading.Lock()
        self._made: set[str] = set()
        #: When each duty is due, on the monotonic clock.
        self._due: dict[Duty, float] = {}
        # The operator: queues, tables and topics are made by an operator, or by a worker in development.
        self.enqueue = self._enqueue  # type: ignore[method-assign]
        self.turn = self._turn  # type: ignore[method-assign]
        self._subscribe, self.events.subscribe = self.events.subscribe, self._make_and_subscribe  # type: ignore[method-assign]
        # The clock: the heartbeat that publishes these is ten seconds apart, and a test reads them at once.
        self._stats, self.inspect.stats = self.inspect.stats, self._published_stats  # type: ignore[method-assign]
        self._workers, self.inspect.workers = self.inspect.workers, self._published_workers  # type: ignore[method-assign]

    # -- the operator ----------------------------------------------------------------------------------

    def _make(self, *queues: str) -> None:
        with self._making:
            needs = {queue: QueueRequirement(queue) for queue in queues if queue not in self._made}
            if needs:
                list(create_resources(self.account, needs, Creation(development=True)))
                self._made.update(needs)

    def declare(self, queue: str, shards: int) -> int:
        check_shards(queue, shards)
        self._make(queue)
        return super().declare(queue, shards)

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        self._make(*(job.queue for job in jobs))
        self.sender.enqueue(jobs)

    def _turn(self, turn: Turn) -> Answer:
        """Before the turn, make the queues of its outboxes, and do the duties that are due."""
        self._do_duties()
        self._make(*(job.queue for settlement in turn.settlements for job in settlement.outbox or ()))
        return self.turns.turn(turn)

    def _make_and_subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        if subscription.queue not in self._made:  # the rest of it is made with its first job
            attributes = queue_attributes(self.account.settings, False, None)
            self.account.clients.sqs("create_queue", QueueName=subscription.queue, Attributes=attributes)
        self.account.topics.create(subscription.topic)
        return self._subscribe(subscription)

    # -- the clock: a worker does its duties in threads, which cannot wait on a clock of the tests ---------

    def join(self, worker: WorkerView) -> None:
        super().join(worker)
        for duty in () if self._due else self.health.duties(["q"]):
            self._due[duty] = 0.0
            duty.sooner = lambda s, duty=duty: self._due.update(
                {duty: min(self._due[duty], self.account.clock.monotonic() + s)}
            )

    def _do_duties(self) -> None:
        for duty, at in list(self._due.items()):
            if self.account.clock.monotonic() >= at:
                self._due[duty] = float("inf")
                again_s = 0.0  # if it fails
                try:
                    again_s = duty.round()
                finally:
                    self._due[duty] = min(self._due[duty], self.account.clock.monotonic() + again_s)

    def _published_stats(self) -> list[QueueStats]:
        """The numbers after the next heartbeat. The conditions of the broker name the delay."""
        self.heartbeat.round()
        return self._stats()

    def _published_workers(self) -> list[WorkerView]:
        """The workers after the next heartbeat. The conditions of the broker name the delay."""
        self.heartbeat.round()
        return self._workers()


class ThreadedBroker(DevelopmentBroker):
    """The same with receiving threads, as in production, on a fake with the machine's clock.

    A turn on SQS brings the messages that the receivers have by then: a worker waits for more, and takes another
    turn. A test takes one turn and expects all that is due. So before a turn this broker has its receivers bring what
    the fake would hand out now, and what comes back within the second for which a message stays hidden that is
    received while it is given back. `wait` and `nudge` are the broker's own.
    """

    def __init__(self, fake: FakeServer, clock: Clock) -> None:
        settings = fake.settings(table="waiter", records=True)
        super().__init__(settings, clock=clock, clients=Clients.of(settings, **fake.clients))
        self._fake = fake

    def _turn(self, turn: Turn) -> Answer:
        if limit := self.turns._wanted(turn):
            buffers = self.turns._receivers.open(turn.queue)
            self.turns._receivers.ask(buffers, limit)
            names = [buffer.sqs_queue.name for buffer in buffers]
            wait_until(
                lambda: sum(len(buffer.ready) for buffer in buffers) >= limit or self._has_all(names),
                lambda: f"{names}: {[self._fake.queues[name].counts for name in names]}",
            )
        return super()._turn(turn)

    def _has_all(self, names: Collection[str]) -> bool:
        """Whether no message of these SQS queues can be received soon, and none is on its way to us."""
        found: list[bool] = []

        def look() -> None:
            soon = self._fake._now() + MOMENT_S
            held = {message.message_id for each in self.inflight.holding for message in each.messages}
            for queue in (self._fake.queues[name] for name in names):
                at = queue.next_at()
                coming = any(_is_fresh(message) and message.id not in held for message in queue.messages)
                found.append(coming or (at is not None and at <= soon))

        self._fake._do(look)
        return not any(found)


def _is_fresh(message: Message) -> bool:
    """Whether nothing has happened to a message since it was received."""
    return bool(message.handles) and message.visible_at == message.received_at + LEASE_S
