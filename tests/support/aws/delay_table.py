"""Shared by tests of the waiter (the table of delayed jobs and its poller): its parts, queues and items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.dynamodb.forward import Forwarder
from laneway.brokers.aws.dynamodb.items import DelayedItem
from laneway.brokers.aws.dynamodb.poller import Poller
from laneway.brokers.aws.dynamodb.tables import Table
from laneway.brokers.aws.operate import AWSOperate
from laneway.brokers.aws.sqs.message import MessageNote, OutgoingMessage, SQSQueue, read
from laneway.clock import Clock, SystemClock
from tests.support.aws.brokers import make_broker
from tests.support.aws.endpoints import Place

#: Looks at the parameters of a send, and may answer in place of SQS.
Change = Callable[[dict[str, Any]], dict[str, Any] | None]

#: One for each server: to make boto3 clients takes longer than most tests.
_shared: WeakKeyDictionary[Place, Clients] = WeakKeyDictionary()


class Calls(Clients):
    """The clients of one process, which counts its requests by itself and may be interfered with."""

    def __init__(self, place: Place) -> None:
        self.settings = place.settings()
        self.requests = Counter()
        if place not in _shared:
            _shared[place] = Clients.of(self.settings, **place.clients)
        self._clients_of_all = _shared[place]

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        self.requests["sqs"] += 1
        return self._clients_of_all.sqs(operation, **params)

    def dynamodb(self, operation: str, **params: Any) -> dict[str, Any]:
        self.requests["dynamodb"] += 1
        return self._clients_of_all.dynamodb(operation, **params)


class Waiters:
    """The parts that the waiter is made of, on one server. Several on one server are several processes."""

    def __init__(
        self, place: Place, clock: Clock | None = None, *, clients: Clients | None = None, **options: Any
    ) -> None:
        self.place = place
        self.settings = place.settings(**options)
        self.clock = clock or SystemClock()
        self.clients = clients or Calls(place)
        self.broker = make_broker(place, clock=self.clock, clients=self.clients, **options)
        self.account, self.sender, self.heartbeat = self.broker.account, self.broker.sender, self.broker.heartbeat
        self.tables = self.account.tables
        self.renew_forwarder()

    def poller(self, *queues: str) -> Poller:
        return Poller(self.account, self.forwarder, queues or ["q"])

    def renew_forwarder(self) -> None:
        """Claim under another name from now on, as a process that was started again does."""
        self.forwarder = Forwarder(self.account)

    def acting(self) -> AWSOperate:
        return AWSOperate(self.account, self.forwarder, self.broker.morgue, self.heartbeat)

    def make_table(self, name: str = "q") -> None:
        self.place.create_table(name)

    def make_queues(self, *names: str) -> None:
        for name in names:
            self.place.create_queue(name)

    def table(self, queue: str = "q") -> Table:
        table = self.tables.of(queue)
        assert table is not None
        return table

    def rows(self, name: str = "q") -> list[dict[str, Any]]:
        """Everything in a table."""
        return self.place.items(name)

    def waiting_ids(self, name: str = "q") -> list[str]:
        """The ids of all jobs that wait in a table."""
        return sorted(row["job_id"]["S"] for row in self.rows(name) if "perform_at" in row)

    def raw_messages(self, name: str = "q") -> list[dict[str, Any]]:
        """Receives and deletes all messages of an SQS queue that are visible."""
        url, found = self.place.queue_url(name), []
        while messages := self.place.receive_all(name):
            found += messages
            for message in messages:
                self.place.sqs_client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def sent_ids(self, name: str = "q") -> list[str]:
        """The job ids of all visible messages of an SQS queue, in order of receipt; they are deleted."""
        sqs_queue = SQSQueue("q", name, "", name.endswith(".fifo"))
        return [read(sqs_queue, raw, 0.0, 0.0).note.id for raw in self.raw_messages(name)]

    def requests(self, service: str) -> int:
        """How many requests this process has made; none of them twice."""
        return self.clients.requests[service]


class Sends:
    """Notes what a process sends to SQS, and may have something happen instead."""

    def __init__(self, waiters: Waiters, change: Change | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self.batches: list[int] = []
        self._ask = waiters.clients.sqs
        self._change = change
        waiters.clients.sqs = self  # type: ignore[method-assign, assignment]  # every call still reaches the server

    def __call__(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "send_message_batch":
            self.entries += params["Entries"]
            self.batches.append(len(params["Entries"]))
            changed = self._change(params) if self._change else None
            if changed is not None:
                return changed
        return self._ask(operation, **params)


def waiting(
    id: str,
    perform_at: float,
    *,
    queue: str = "q",
    key: str = "",
    body: str = "",
    cancellable: bool = False,
    **note: Any,
) -> DelayedItem:
    """A job that is to wait: a call of `key`, if that is given."""
    text = body or '{"_job_class":"Send","_job_params":{"n":1}}'
    outgoing = OutgoingMessage(text, MessageNote(id, key=key, due=perform_at, **note))
    return DelayedItem(
        job_id=id, perform_at=perform_at, queue=queue, fifo=bool(key), outgoing=outgoing, cancellable=cancellable
    )


def most_often(ids: list[str]) -> int:
    """How often the one that is there most often is."""
    return max(Counter(ids).values(), default=0)
