"""SimulatedAWS: the AWS broker of one participant of a simulation, on a fake that all participants share.

A turn on SQS is several requests. A simulation can cut it off before and after each of them: every request is the
failpoint `inside call`, twice. SQS does not show what is in a queue, so the simulation reads that from the fake.
Requests go to the fake without boto3 and HTTP, which would take nearly all of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.dynamodb.forward import Forwarder, ForwardResult
from laneway.brokers.aws.dynamodb.items import DelayedItem
from laneway.brokers.aws.dynamodb.tables import Table
from laneway.brokers.aws.errors import explain
from laneway.brokers.aws.settings import AWSSettings
from laneway.brokers.aws.sqs.message import ATTRIBUTE, MessageNote, SQSQueue
from laneway.clock import Clock
from laneway.failpoints import armed, reach
from tests.support.aws.development_broker import DevelopmentBroker
from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.messages import Message
from tests.support.aws.fake.server import FakeServer
from tests.support.checkers import Snapshot

TABLE = "waiter"


class DirectClients(Clients):
    """Clients that call the fake in this thread. A request can be lost, and so can its answer."""

    def __init__(self, settings: AWSSettings, fake: FakeServer) -> None:
        super().__init__(settings)
        self._fake = fake

    def _call(self, name: str, place: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        service, action = name.partition(" ")[0], "".join(map(str.capitalize, operation.split("_")))
        if armed:
            reach("inside call")
        try:
            answer = self._fake.call(service, action, msgspec.json.decode(msgspec.json.encode(params)))
        except Refusal as refusal:
            code = refusal.query_code if service == "sqs" else refusal.kind
            error = {"Error": {"Code": code, "Message": refusal.message}, **refusal.more}
            raise explain(ClientError(error, action), place, f"{service}:{action}") from None  # type: ignore[arg-type]
        if armed:
            reach("inside call")
        return answer


class OneByOne:
    """A thread pool without threads."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        return map(work, items)

    def submit(self, work: Callable[[Any], Any], item: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(work(item))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **options: bool) -> None:
        """There is nothing to end."""


class SerialForwarder(Forwarder):
    """Sends delayed jobs to their queues without threads."""

    def _batch(self, table: Table, sqs_queue: SQSQueue, items: list[DelayedItem], pool: Any) -> ForwardResult:
        return super()._batch(table, sqs_queue, items, OneByOne())  # type: ignore[arg-type]


class SimulatedAWS(DevelopmentBroker):
    """An AWS broker without threads: the same seed makes the same requests. Subclasses have a mistake in them."""

    clients_type: type[DirectClients] = DirectClients
    forwarder_type: type[Forwarder] = SerialForwarder

    def __init__(self, fake: FakeServer, clock: Clock) -> None:
        settings = fake.settings(table=TABLE, wait_s=0, records=True, poll_s=10.0)
        super().__init__(settings, clock=clock, clients=self.clients_type(settings, fake), inline=True)
        self._fake = fake
        self.turns._changer._pool = OneByOne()  # type: ignore[assignment]

    def _make_forwarder(self) -> Forwarder:
        return self.forwarder_type(self.account)

    def snapshot(self) -> Snapshot:
        """Where the jobs are. SQS may store a job twice: then it counts where it has come furthest."""
        waiting, running, dead = set[str](), set[str](), set[str]()
        now = self._fake._now()
        for name, queue in self._fake.queues.items():
            for message in queue.messages:
                held = bool(message.handles) and message.visible_at > now
                (dead if "-deadletter" in name else running if held else waiting).add(_job_of(message))
        delayed = (item for item in self._fake.tables[TABLE].items() if "sqs_message_body" in item)
        waiting |= {item["job_id"]["S"] for item in delayed}
        return Snapshot(frozenset(waiting - running - dead), frozenset(running - dead), frozenset(dead))


_read_note = msgspec.json.Decoder(MessageNote).decode


def _job_of(message: Message) -> str:
    return _read_note(message.attributes[ATTRIBUTE]["StringValue"]).id


class OnFake:
    """Connects every participant to one fake, which has the clock of the first."""

    def __init__(self, broker: type[SimulatedAWS] = SimulatedAWS) -> None:
        self._broker = broker
        self._fake: FakeServer | None = None

    def __call__(self, clock: Clock) -> SimulatedAWS:
        if self._fake is None:
            self._fake = FakeServer.unserved(clock)
        return self._broker(self._fake, clock)
