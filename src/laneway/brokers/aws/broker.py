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
from .dynamodb.poller import Poller
from .inspect import AWSInspect
from .operate import AWSOperate
from .settings import AWSSettings
from .sns.subscriptions import SNSSubscriptions
from .sqs.dead_letters import DeadLetterMorgue
from .sqs.inflight import Inflight
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
        self.account = account = Account(settings, clock=clock, clients=clients)
        self.capabilities = capabilities(settings)
        self.health = AWSHealth(self)
        self.inflight = Inflight(account)
        self.heartbeat = Heartbeat(account, self.inflight)
        self.sender = MessageSender(account, self.health)
        self.turns = SQSTurns(account, self.inflight, self.sender, self.heartbeat, inline=inline)
        self.morgue = DeadLetterMorgue(account, self.sender)
        self.inspect = AWSInspect(account, self.inflight, self.morgue)
        self.operate = AWSOperate(account, self._make_forwarder(), self.morgue, self.heartbeat)
        self.events = SNSSubscriptions(account)
        # Verbs that one part carries out alone.
        self.enqueue = self.sender.enqueue
        self.turn = self.turns.turn
        self.wait = self.turns.wait
        self.nudge = self.turns.nudge
        self.status = self.inspect.status
        self.cancel = self.operate.cancel
        self.reschedule = self.operate.reschedule

    @classmethod
    def from_url(cls, url: Url) -> AWSBroker:
        """The broker of an `sqs://` URL, or of an SQS queue's own http(s) URL."""
        return cls(AWSSettings.from_url(url))

    def declare(self, queue: str, shards: int) -> int:
        """Note a queue, and look it up; SQS has no shards. The first use reports it if it is missing."""
        check_shards(queue, shards)
        self.account.queues.declare(queue)
        self.account.tables.declare(queue)
        self.account.queues.look_up(queue)
        return 1

    def join(self, worker: WorkerView) -> None:
        self.turns.join(worker)
        self.heartbeat.join(worker)

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Keep hidden what this process holds, and give back the worker's claims that it does not know of."""
        self.turns.renew(worker, held, before)

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        """Give back what this process holds, and count a death for what ended another one, if there is a table."""
        self.heartbeat.leave(worker, died)
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
        return Poller(self.account, self._make_forwarder(), queues)

    def _make_forwarder(self) -> Forwarder:
        return Forwarder(self.account)

    def close(self) -> None:
        self.turns.close()
        self.account.clients.close()
