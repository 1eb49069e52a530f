"""AWSBroker: passes each verb of the broker contract to the part that carries it out.

It decides nothing itself. A verb that SQS cannot support is refused with a sentence that names an alternative.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...broker import Answer, Listing, Order, Page, ReshardProgress, Turn
from ...capabilities import AutoCreateNote, Duty, EmptyMorgueResult, SettleBatch
from ...clock import Clock, SystemClock
from ...errors import BrokerRefusedError
from ...events.event import Subscription
from ...jobs.data import JobView, NewJob, QueueStats, StartedRun, Status, WorkerView
from ...urls import Url
from .admin.check import check, check_app, notes_on_events
from .admin.create import provide
from .clients import Clients
from .dynamodb.forward import Forwarder
from .dynamodb.heartbeat import Heartbeat
from .dynamodb.poller import Poller, Pollers
from .dynamodb.tables import Tables
from .inspect import Inspection, JobLocator
from .operate import Operations
from .settings import AWSSettings
from .sns.publish import SNSPublisher
from .sns.subscriptions import SNSSubscriptions, TopicSubscriptions
from .sns.topics import Topics
from .sqs.dead_letters import DeadLetterMorgue
from .sqs.empty_morgue import MorgueEmptier
from .sqs.queues import SQSQueues
from .sqs.send import MessageSender
from .sqs.turn import SQSTurns
from .unsupported import refusal

if TYPE_CHECKING:
    from ...app import Laneway


class AWSBroker:
    """Keeps jobs in SQS queues and, those that are due later, in a DynamoDB table."""

    shared = True
    remote = True
    holders_keep = True
    makes_queues = False
    #: SNS makes the copies of an event.
    relays = True
    #: Ids of what a run enqueues are made from the run's own, so that a repeated run sends the same jobs.
    derives_ids = True
    gather = SettleBatch(10, 0.1)
    #: Seconds of work that are fetched ahead: a request takes longer than on other brokers.
    ahead_s = 0.2
    #: How many of a queue are run before it is another's turn: what one request brings.
    weight = 10

    def __init__(
        self,
        settings: AWSSettings,
        *,
        clock: Clock | None = None,
        clients: Clients | None = None,
        inline: bool = False,
    ) -> None:
        """`inline` receives within a turn, without threads and without waiting: for tests on a clock of their own."""
        self.settings = settings
        self.max_body = settings.max_body
        #: What it cannot do, known when a task is declared.
        self.refusal = partial(refusal, prefix=settings.prefix)
        self.clock = clock or SystemClock()
        self.clients = clients or Clients(settings)
        self.channels = SQSQueues(self.clients, settings, self.clock)
        self.tables = Tables(self.clients, settings, self.clock)
        self.topics = Topics(self.clients, settings)
        self.ties = TopicSubscriptions(self.clients, self.channels, self.topics, settings)
        self.subscribing = SNSSubscriptions(self.clients, self.channels, self.topics, self.ties)
        self.pollers = Pollers()
        #: Whether what is missing is made by whoever needs it; the app says so.
        self.development = False
        publisher = SNSPublisher(self.clients, self.topics, lambda: self.development)
        self.sender = MessageSender(
            self.clients, self.channels, self.tables, settings, self.clock, self.pollers, publisher
        )
        self.reporter = Heartbeat(self.tables, self.clock)
        self.turns = SQSTurns(
            self.clients, self.channels, self.tables, self.sender, self.reporter, settings, self.clock, inline=inline
        )
        self.morgue = DeadLetterMorgue(self.clients, self.channels, self.tables, self.sender, settings, self.clock)
        self.looks = Inspection(self.channels, self.tables, self.morgue, settings, self.clock)
        self.whereabouts = JobLocator(self.tables, self.turns, self.clock)
        #: Queues of which it was said that they are missing, though jobs wait for them.
        self._told_missing: set[str] = set()
        forwarder = Forwarder(self.clients, self.channels, settings, self.clock, self._told_missing)
        self.acts = Operations(self.channels, self.tables, forwarder, settings, self.clock, self.pollers)
        self.reporter.holding = self.turns.holding
        self.reporter.running = self.turns.running

    @classmethod
    def from_url(cls, url: Url) -> AWSBroker:
        """The broker of an `sqs://` URL, or of an SQS queue's own http(s) URL."""
        return cls(AWSSettings.from_url(url))

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        """Take note of a queue; SQS has no shards. One that is missing is told when it is used."""
        self.channels.declare(queue)
        self.tables.declare(queue)
        return 1

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Send jobs, in tens, or publish them; if that fails midway, the error names what was not stored."""
        self.sender.enqueue(jobs)

    # -- events ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> bool:
        """Subscribe a queue to a topic, both of which must exist, and let the topic send to it."""
        return self.subscribing.subscribe(subscription)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        return self.subscribing.unsubscribe(topic, queue)

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """Those of a topic; or all of queues that are named after their topics, or known to this process."""
        return self.subscribing.subscriptions(topic)

    def provide(self, app: Laneway, queues: Collection[str]) -> list[AutoCreateNote]:
        """In development: make what is missing for these queues. Says what was made, and what is otherwise."""
        return provide(self, app, queues)

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        self.turns.join(worker)
        self.reporter.join(worker)

    def turn(self, turn: Turn) -> Answer:
        return self.turns.turn(turn)

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return self.turns.wait(queues, timeout_s)

    def nudge(self) -> None:
        self.turns.nudge()

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Keep hidden what this process holds."""
        self.turns.renew()

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        """Give back what this process holds, and count a death for what ended another one, if there is a table."""
        self.reporter.leave(worker, died)
        return self.turns.leave(worker)

    def leases(self) -> dict[str, tuple[int, float]]:
        """None: SQS itself hands out again what a dead worker held."""
        return {}

    def declare_dead(self, worker: str, counter: int) -> bool:
        return False

    def reclaim(self) -> int:
        return 0

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        """The poller of the waiter tables, and what others are told of this worker."""
        forwarder = Forwarder(self.clients, self.channels, self.settings, self.clock, self._told_missing)
        poller = Poller(self.tables, forwarder, self.settings, self.clock, queues)
        self.pollers.add(poller)
        return [poller, self.reporter]

    # -- looking ---------------------------------------------------------------------------------------

    def exists(self, queue: str) -> bool:
        """Whether there is such a queue, or jobs that wait for it: SQS is asked for it by its name, never for all."""
        return self.looks.exists(queue)

    def queues(self) -> dict[str, int]:
        return self.looks.queues()

    def stats(self) -> list[QueueStats]:
        return self.looks.stats()

    def lags(self, queue: str) -> dict[int, float]:
        return {}

    def workers(self) -> list[WorkerView]:
        return self.looks.workers()

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        return self.whereabouts.status(queue, key, identity)

    def find(self, queue: str, key: str) -> list[JobView]:
        return self.looks.find(queue, key)

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return self.looks.listing(queue, which, order=order, reverse=reverse, start=start, after=after, limit=limit)

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        return self.acts.cancel(queue, key, identity)

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        return self.acts.reschedule(queue, key, identity, delay_s=delay_s, perform_at=perform_at)

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        return self.acts.run_now(queue, keys)

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self.acts.bury_failed(queue, keys, self.morgue)

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self.acts.delete_failed(queue, keys)

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        return self.morgue.revive(queue, keys)

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        return self.morgue.delete(queue, keys)

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        """Revive or delete what is dead of plain jobs, ten by ten, without listing it first."""
        return MorgueEmptier(self.morgue, self.clock, queue, revive=revive).steps(most)

    def pause(self, queue: str) -> bool:
        return self.reporter.pause(queue, True)

    def resume(self, queue: str) -> bool:
        return self.reporter.pause(queue, False)

    # -- shards ----------------------------------------------------------------------------------------

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        raise BrokerRefusedError("SQS queues have no shards, and so nothing to reshard; SQLite and Redis have them.")

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        return check(self)

    def check_app(self, app: Laneway) -> list[str]:
        """What an app's tasks and listeners need, and is missing or otherwise."""
        return check_app(self, app)

    def notes(self, app: Laneway) -> list[str]:
        """What is well, and may surprise."""
        return notes_on_events(self, app)

    def repair(self) -> list[str]:
        """Nothing: SQS mends itself."""
        return []

    def close(self) -> None:
        self.turns.close()
        self.clients.close()
