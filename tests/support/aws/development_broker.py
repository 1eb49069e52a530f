"""DevelopmentBroker: the AWS broker with an operator who makes missing queues and topics, and a worker's duties.

The conformance suite expects a queue to be made by its first use, and has no threads that do the duties of a worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

from laneway.broker import Answer, Turn, UrgentDuty
from laneway.brokers.aws.admin.create import Creation
from laneway.brokers.aws.admin.resources import QueueRequirement, queue_attributes
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.shared import check_shards, check_subscription
from laneway.events.event import Subscription
from laneway.jobs.data import NewJob, QueueStats, WorkerView


class DevelopmentBroker(AWSBroker):
    """Makes queues, tables and topics on first use, and does its duties when they are due by its clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._making = threading.Lock()
        #: A message that is received while it is being given back is hidden for a second, and time may stand still.
        self._giving_back = threading.Lock()
        self._made: set[str] = set()
        self._nudges = 0
        #: When each duty is due, on the monotonic clock.
        self._due: dict[UrgentDuty, float] = {}
        self.enqueue = self._enqueue  # type: ignore[method-assign]
        self.turn = self._turn  # type: ignore[method-assign]
        self.wait = self._wait  # type: ignore[method-assign]
        self.nudge = self._nudge  # type: ignore[method-assign]
        self._subscribe, self.events.subscribe = self.events.subscribe, self._make_and_subscribe  # type: ignore[method-assign]
        self._stats, self.inspect.stats = self.inspect.stats, self._fresh_stats  # type: ignore[method-assign]
        self._workers, self.inspect.workers = self.inspect.workers, self._fresh_workers  # type: ignore[method-assign]

    def _make(self, *queues: str) -> None:
        with self._making:
            needs = {queue: QueueRequirement(queue) for queue in queues if queue not in self._made}
            if needs:
                list(Creation(self, development=True).carry_out(needs))
                self.channels.look_again()
                self._made.update(needs)

    def declare(self, queue: str, shards: int) -> int:
        check_shards(queue, shards)
        self._make(queue)
        return super().declare(queue, shards)

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        self._make(*(job.queue for job in jobs))
        self.sender.enqueue(jobs)

    def _turn(self, turn: Turn) -> Answer:
        self._do_duties()
        self._make(*(job.queue for settlement in turn.settlements for job in settlement.outbox or ()))
        with self._giving_back if turn.settlements else nullcontext():
            return self.turns.turn(turn)

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        with self._giving_back:
            super().renew(worker, held, before)

    def _wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Look again and again: on a clock that stands still, SQS waits for nothing."""
        until, nudges = time.monotonic() + timeout_s, self._nudges
        while True:
            self._do_duties()
            with self._giving_back:
                found = self.turns.wait(queues, 0.0)
            if found or nudges != self._nudges or time.monotonic() >= until:
                return found
            time.sleep(0.005)

    def _nudge(self) -> None:
        self._nudges += 1

    def _make_and_subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        if subscription.queue not in self._made:  # the rest of it is made with its first job
            attributes = queue_attributes(self.settings, False, None)
            self.clients.sqs("create_queue", QueueName=subscription.queue, Attributes=attributes)
        self.topics.create(subscription.topic)
        return self._subscribe(subscription)

    # -- duties ----------------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        super().join(worker)
        for duty in () if self._due else self.health.duties(["q"]):
            self._due[duty] = 0.0
            duty.sooner = lambda s, duty=duty: self._due.update(
                {duty: min(self._due[duty], self.clock.monotonic() + s)}
            )

    def _do_duties(self) -> None:
        for duty, at in list(self._due.items()):
            if self.clock.monotonic() >= at:
                self._due[duty] = float("inf")
                again_s = 0.0  # if it fails
                try:
                    again_s = duty.round()
                finally:
                    self._due[duty] = min(self._due[duty], self.clock.monotonic() + again_s)

    def _fresh_stats(self) -> list[QueueStats]:
        self.reporter.round()
        return self._stats()

    def _fresh_workers(self) -> list[WorkerView]:
        self.reporter.round()
        return self._workers()
