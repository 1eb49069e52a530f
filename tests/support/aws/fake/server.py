"""The fake as a server: in a thread of the test process, or as its own process (`python -m tests.support.aws.fake`).

One thread does everything, so two requests never run at the same time. The fake's time follows the intervals of the
clock (`monotonic`), not its steps: an operator who sets a machine's time does not change the time of AWS.
"""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any

import msgspec

from laneway.clock import Clock, SystemClock
from tests.support.aws.endpoints import ACCOUNT, Place
from tests.support.aws.fake import query
from tests.support.aws.fake.dynamodb import DynamoDB
from tests.support.aws.fake.faults import Faults, Refusal
from tests.support.aws.fake.http import Connection, Request, response
from tests.support.aws.fake.queues import Queue
from tests.support.aws.fake.sns import SNS, Lost
from tests.support.aws.fake.sqs import SQS
from tests.support.aws.fake.sts import STS
from tests.support.aws.fake.tables import Table
from tests.support.aws.fake.topics import Topic

_TARGETS = {"AmazonSQS": "sqs", "DynamoDB_20120810": "dynamodb"}
#: All that there are, and the status with which each denies.
_SERVICES = _DENIED_STATUS = {"sqs": 403, "dynamodb": 400, "sns": 403, "sts": 403}


class FakeServer(Place):
    """SQS, DynamoDB, SNS and STS in memory, on a port of 127.0.0.1."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or SystemClock()
        #: Whether time passes only when a test says so: then nothing can be waited for.
        self._manual = clock is not None and not isinstance(clock, SystemClock)
        self._started = self._clock.now() - self._clock.monotonic()
        #: How many requests there were since the last reset, by names such as `sqs.SendMessageBatch`.
        self.requests: Counter[str] = Counter()
        self.faults = Faults()
        #: What nobody may do, by names such as `sns.Publish`, until the next reset.
        self.denied: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._open: set[asyncio.Transport] = set()
        self._empty()

    @classmethod
    def start(cls, clock: Clock | None = None, port: int = 0) -> FakeServer:
        """A new server that answers. With a clock it tells the time by that, and a long poll does not wait."""
        server = cls(clock)
        loop = server._loop
        connect = partial(Connection, server._handle, server._open)
        listening = loop.run_until_complete(loop.create_server(connect, "127.0.0.1", port))
        server.endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        server._thread = threading.Thread(target=server._run, args=(listening,), name="fake AWS", daemon=True)
        server._thread.start()
        return server

    @classmethod
    def unserved(cls, clock: Clock) -> FakeServer:
        """The services without a server, for one thread that uses `call`."""
        fake = cls(clock)
        fake._loop.close()
        fake.endpoint = "http://fake"
        return fake

    def call(self, service: str, operation: str, params: dict[str, Any]) -> Any:
        """Carry out a request that comes without HTTP. Raises Refusal."""
        return self._act(service, operation, params, "fake")

    def end(self) -> None:
        """Stop answering. No harm if it has ended."""
        self.forget_clients()
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None

    def reset(self) -> None:
        """Forget all queues, tables, topics, requests, faults and denials."""
        self._do(self._empty)

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def queues(self) -> dict[str, Queue]:
        """By name: `fake.queues["q"].counts`, `.bodies`, `.messages`."""
        return self.sqs.queues

    @property
    def tables(self) -> dict[str, Table]:
        """By name: `fake.tables["t"].items()`; `.page_items` makes answers short."""
        return self.dynamodb.tables

    @property
    def topics(self) -> dict[str, Topic]:
        """By name: `fake.topics["t"].subscriptions`."""
        return {topic.name: topic for topic in list(self.sns.topics.values())}

    @property
    def lost(self) -> list[Lost]:
        """What was published and did not come into a queue that has subscribed: nobody else is ever told."""
        return self.sns.lost

    @property
    def filtered(self) -> int:
        """How many copies filters have kept from being made."""
        return self.sns.filtered

    @property
    def page_items(self) -> int | None:
        """How many items a page of a query or scan looks at; None: as many as fit into a megabyte, as on AWS."""
        return self.dynamodb.page_items

    @page_items.setter
    def page_items(self, value: int | None) -> None:
        self.dynamodb.page_items = value

    # -- inside ----------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._started + self._clock.monotonic()

    def _empty(self) -> None:
        known = self.sqs.queues if hasattr(self, "sqs") else {}
        gone = list(known.values())
        known.clear()
        self.requests.clear()
        self.denied.clear()
        self.faults.clear()
        self.faults.seed(0)
        self.sqs = SQS(self._now, self.faults, manual=self._manual)
        self.dynamodb = DynamoDB(self._now)
        self.sns = SNS(self._now, self.sqs)
        self.sts = STS()
        for queue in gone:
            queue.wake()

    def _run(self, listening: asyncio.Server) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._settle(listening))
        self._loop.close()

    async def _settle(self, listening: asyncio.Server) -> None:
        """Accept no more connections, cut off all, and let them notice it."""
        for socket in listening.sockets:
            self._loop.remove_reader(socket.fileno())
        for _ in range(3):  # asyncio loses a connection that is accepted and not made yet when the server closes
            await asyncio.sleep(0)
        listening.close()
        for transport in list(self._open):
            transport.abort()
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0)

    def _do(self, act: Callable[[], None]) -> None:
        """Act in the server's thread, between two requests."""
        if self._thread is None or threading.current_thread() is self._thread:
            act()
            return

        async def acting() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acting(), self._loop).result()

    def _handle(self, request: Request) -> bytes | Awaitable[bytes]:
        if request.path.startswith("/fake/"):
            return self._control(request)
        if "x-amz-target" not in request.headers:
            return self._handle_form(request)
        prefix, _, operation = request.headers["x-amz-target"].partition(".")
        service = _TARGETS.get(prefix, prefix)
        try:
            answer = self._act(service, operation, msgspec.json.decode(request.body), request.host)
        except Refusal as refusal:
            return _refused(service, refusal)
        return _answered(answer) if isinstance(answer, dict) else self._later(service, answer)

    def _handle_form(self, request: Request) -> bytes:
        service, operation, params = query.read(query.pairs(request.body))
        try:
            return query.answered(service, operation, self._act(service, operation, params, request.host))
        except Refusal as refusal:
            return query.refused(service, refusal)

    def _act(self, service: str, operation: str, params: dict[str, Any], host: str) -> Any:
        """Carry it out: the answer, or something to wait for."""
        name = f"{service}.{operation}"
        self.requests[name] += 1
        act = getattr(getattr(self, service, None), _snake(operation), None)
        if act is None or service not in _SERVICES or _snake(operation).startswith("_"):
            raise Refusal("UnknownOperationException", f"This fake has no {service} {operation}.")
        if name in self.denied:
            kind = "AuthorizationError" if service == "sns" else "AccessDeniedException"
            action = f"User: arn:aws:iam::{ACCOUNT}:user/fake is not authorized to perform: {service}:{operation}"
            raise Refusal(kind, f"{action} because no identity-based policy allows it", _DENIED_STATUS[service])
        return act(params, host)

    async def _later(self, service: str, waited: Awaitable[dict[str, Any]]) -> bytes:
        try:
            return _answered(await waited)
        except Refusal as refusal:
            return _refused(service, refusal)

    def _control(self, request: Request) -> bytes:
        """What a test of another process may ask: see `FakeProcess`."""
        match request.method, request.path:
            case "POST", "/fake/reset":
                self._empty()
                return _answered({})
            case "POST", "/fake/set":
                for name, value in msgspec.json.decode(request.body).items():
                    if name == "seed":
                        self.faults.seed(value)
                    elif name == "denied":
                        self.denied = set(value)
                    else:
                        setattr(self if name == "page_items" else self.faults, name, value)
                return _answered({})
            case "GET", "/fake/requests":
                return _answered(dict(self.requests))
            case "GET", "/fake/faults":
                shown = ("duplicates", "reordered", "misses", "duplicated", "overtaken", "missed")
                return _answered({name: getattr(self.faults, name) for name in shown})
            case "GET", "/fake/lost":
                return _answered({"lost": msgspec.to_builtins(self.lost), "filtered": self.filtered})
            case "GET", "/fake/queues":
                return _answered({name: msgspec.to_builtins(queue.counts) for name, queue in self.queues.items()})
        return response(b"Not found", 404)


@lru_cache
def _snake(operation: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()


def _answered(answer: dict[str, Any]) -> bytes:
    return response(msgspec.json.encode(answer), 200, f"x-amzn-RequestId: {uuid.uuid4()}\r\n")


def _refused(service: str, refusal: Refusal) -> bytes:
    kind, headers = refusal.kind, f"x-amzn-RequestId: {uuid.uuid4()}\r\n"
    if service == "sqs":
        headers += f"x-amzn-query-error: {refusal.query_code};Sender\r\n"
        kind = f"com.amazonaws.sqs#{kind}"
    elif kind == "ValidationException":
        kind = f"com.amazon.coral.validate#{kind}"
    else:
        kind = f"com.amazonaws.dynamodb.v20120810#{kind}"
    body = {"__type": kind, "message": refusal.message, **refusal.more}
    return response(msgspec.json.encode(body), refusal.status, headers)
