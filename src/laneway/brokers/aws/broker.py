"""AWSBroker: puts the parts together. Each verb belongs to the part that carries it out."""

from __future__ import annotations

from collections.abc import Collection

from ...clock import Clock
from ...jobs.data import StartedRun, WorkerView
from ...urls import Url
from ..shared import check_shards
from .account import Account
from .admin.check import AWSHealth
from .clients import Clients
from .dynamodb.forward import Forwarder
from .dynamodb.heartbeat import Heartbeat
from .dynamodb.poller import Poller, Pollers
from .inspect import AWSInspect, JobLocator
from .operate import AWSOperate
from .settings import AWSSettings
from .sns.publish import SNSPublisher
from .sns.subscriptions import SNSSubscriptions, TopicSubscriptions
from .sns.topics import Topics
from .sqs.dead_letters import DeadLetterMorgue
from .sqs.send import MessageSender
from .sqs.turn import SQSTurns
from .unsupported import capabilities


class AWSBroker:
    """Keeps jobs in SQS queues and, those that are due later, in a DynamoDB table."""

    def __init__(
        self,
        settings: AWSSettings,
        *,
        clock: Clock | None = None,
        clients: Clients | None = None,
        inline: bool = False,
    ) -> None:
        """`inline` receives within a turn, without threads and without waiting: for tests on a clock of their own."""
        self.account = Account(settings, clock=clock, clients=clients)
        self.settings = settings
        self.capabilities = capabilities(settings)
        self.clock = self.account.clock
        self.clients = self.account.clients
        self.channels = self.account.queues
        self.tables = self.account.tables
        self.topics = Topics(self.clients, settings)
        self.ties = TopicSubscriptions(self.clients, self.channels, self.topics, settings)
        self.pollers = Pollers()
        publisher = SNSPublisher(self.clients, self.topics, lambda: self.health.auto_create)
        self.sender = MessageSender(
            self.clients, self.channels, self.tables, settings, self.clock, self.pollers, publisher
        )
        self.reporter = Heartbeat(self.tables, self.clock)
        self.turns = SQSTurns(
            self.clients, self.channels, self.tables, self.sender, self.reporter, settings, self.clock, inline=inline
        )
        self.morgue = DeadLetterMorgue(self.clients, self.channels, self.tables, self.sender, settings, self.clock)
        #: Queues that were reported as missing, though jobs wait for them.
        self._told_missing: set[str] = set()
        self.inspect = AWSInspect(self.channels, self.tables, self.morgue, settings, self.clock)
        self.operate = AWSOperate(
            self.channels,
            self.tables,
            self._make_forwarder(),
            settings,
            self.clock,
            self.morgue,
            self.reporter,
            self.pollers,
        )
        self.events = SNSSubscriptions(self.clients, self.channels, self.topics, self.ties)
        self.health = AWSHealth(self)
        self.reporter.holding = self.turns.holding
        self.reporter.running = self.turns.running
        self.reporter.resumed = self.turns.resumed
        # Verbs that one part carries out alone.
        self.enqueue = self.sender.enqueue
        self.turn = self.turns.turn
        self.wait = self.turns.wait
        self.nudge = self.turns.nudge
        self.status = JobLocator(self.tables, self.turns, self.clock).status
        self.cancel = self.operate.cancel
        self.reschedule = self.operate.reschedule

    @classmethod
    def from_url(cls, url: Url) -> AWSBroker:
        """The broker of an `sqs://` URL, or of an SQS queue's own http(s) URL."""
        return cls(AWSSettings.from_url(url))

    def declare(self, queue: str, shards: int) -> int:
        """Note a queue; SQS has no shards. The first use reports it if it is missing."""
        check_shards(queue, shards)
        self.channels.declare(queue)
        self.tables.declare(queue)
        return 1

    def join(self, worker: WorkerView) -> None:
        self.turns.join(worker)
        self.reporter.join(worker)

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Keep hidden what this process holds, and give back the worker's claims that it does not know of."""
        self.turns.renew(worker, held, before)

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

    def make_poller(self, queues: Collection[str]) -> Poller:
        """A poller of the tables of these queues."""
        poller = Poller(self.tables, self._make_forwarder(), self.settings, self.clock, queues)
        self.pollers.add(poller)
        return poller

    def _make_forwarder(self) -> Forwarder:
        return Forwarder(self.clients, self.channels, self.settings, self.clock, self._told_missing)

    def close(self) -> None:
        self.turns.close()
        self.clients.close()
