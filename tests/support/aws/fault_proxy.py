"""A proxy between boto3 and a server that speaks AWS's protocols; it injects faults.

    with FaultProxy(fake.endpoint) as proxy:
        lost = proxy.rule(LOST, "SendMessageBatch", nth=2)
        broker = AWSBroker(proxy.settings())
        …
        assert lost.happened == 1

ERROR_500, ERROR_503, THROTTLED and REQUEST_THROTTLED reject a call before it reaches the server. RESET cuts the
connection before the call. LOST cuts it when the response has arrived, so the call has certainly been carried out.
`Partly` removes some entries from a batch: the server never sees them, and the response reports them as failed.
`log` has every call.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from tests.support.aws import protocols
from tests.support.aws.endpoints import Place
from tests.support.aws.partial_batches import Partly
from tests.support.aws.protocols import ERROR_500, ERROR_503, REFUSALS, REQUEST_THROTTLED, THROTTLED, Call, Fault

__all__ = [
    "ERROR_500",
    "ERROR_503",
    "FAULTS",
    "LOST",
    "REQUEST_THROTTLED",
    "RESET",
    "THROTTLED",
    "Call",
    "FaultProxy",
    "Partly",
    "Rule",
]

RESET, LOST = "reset", "answer lost"
#: All that are the same for every operation.
FAULTS = (*REFUSALS, RESET, LOST)
#: What is said of a connection, and not of what is sent over it.
_OF_CONNECTIONS = {"connection", "content-length", "transfer-encoding", "keep-alive", "server", "date"}


@dataclass(slots=True)
class Rule:
    """Which calls a fault happens to, and how often it has happened."""

    fault: Fault
    operation: str | None
    nth: Collection[int] | None
    share: float | None
    chance: random.Random
    #: How many calls it has looked at.
    seen: int = 0
    happened: int = 0

    def applies(self, call: Call) -> bool:
        if self.operation not in (None, call.operation, call.name):
            return False
        if isinstance(self.fault, Partly) and not self.fault.fits(call.operation):
            return False
        self.seen += 1
        if self.nth is not None:
            return self.seen in self.nth
        return self.share is None or self.chance.random() < self.share


class FaultProxy(Place):
    """Between any number of clients and one server; a thread for each connection."""

    def __init__(self, endpoint: str) -> None:
        host = urlsplit(endpoint)
        self._server = (host.hostname or "127.0.0.1", host.port or 80)
        #: All calls, in the order in which they came.
        self.log: list[Call] = []
        #: Called with each call before anything happens to it, in its connection's thread: it may wait.
        self.before: Callable[[Call], None] = lambda call: None
        #: The same when the server has carried it out, before the client gets the answer.
        self.after: Callable[[Call], None] = lambda call: None
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Cut all connections."""
        self.forget_clients()
        with self._lock:
            self._closed = True
            cut = [*self._open, self._listener]
        for connection in cut:
            with suppress(OSError):  # it has been cut already
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    # -- faults ----------------------------------------------------------------------------------------

    def rule(
        self,
        fault: Fault,
        operation: str | None = None,
        *,
        nth: int | Collection[int] | None = None,
        share: float | None = None,
        seed: int = 0,
    ) -> Rule:
        """Have a fault happen to calls of an operation (`SendMessageBatch` or `sqs.SendMessageBatch`), or to any.

        To all of them, to the nth from now on (1 is the next), or to a share of them. Of several rules that
        apply the first is followed.
        """
        rule = Rule(fault, operation, {nth} if isinstance(nth, int) else nth, share, random.Random(seed))
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No faults from now on, and an empty log."""
        with self._lock:
            self._rules.clear()
            self.log.clear()

    @property
    def requests(self) -> Counter[str]:
        """How many calls there were, by names such as `sqs.SendMessageBatch`; those that failed are included."""
        with self._lock:
            return Counter(call.name for call in self.log)

    def _fault(self, call: Call) -> Fault | None:
        with self._lock:
            self.log.append(call)
            applying = [rule for rule in self._rules if rule.applies(call)]  # each of them counts the call
            if applying:
                applying[0].happened += 1
                call.fault = applying[0].fault
        return call.fault

    # -- connections -----------------------------------------------------------------------------------

    def _start(self, act: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=act, args=args, name="fault proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    client.close()
                    return
                self._open.add(client)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        server = HTTPConnection(*self._server, timeout=60)
        with client, client.makefile("rb") as requests:
            try:
                server.connect()
                with self._lock:
                    self._open.add(server.sock)
                while not self._closed and self._one(client, requests, server):
                    pass
            except (OSError, HTTPException, ValueError):  # one of them is gone, or the proxy is at its end
                pass
            finally:
                with self._lock:
                    self._open -= {client, server.sock}
                server.close()
                _cut(client)

    def _one(self, client: socket.socket, requests: BinaryIO, server: HTTPConnection) -> bool:
        """Carry over one request and its answer; False: the connection is to be cut."""
        if not (first := requests.readline()):
            return False
        method, path, _ = first.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while line := requests.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = requests.read(int(headers.get("content-length", 0)))
        call = protocols.call(headers, body)
        self.before(call)
        fault = self._fault(call) if call.operation else None
        if fault == RESET:
            return False
        if isinstance(fault, str) and fault in REFUSALS:
            client.sendall(_answer(*protocols.refusal(call, fault)))
            return True
        failed: list[Any] = []
        if isinstance(fault, Partly):
            left, failed = protocols.strip(call, body, fault)
            if left is None:  # nothing is left of it
                client.sendall(
                    _answer(200, protocols.finish(call, None, failed, fault), {"Content-Type": call.answers_in})
                )
                return True
            body = left
        kept = {name: value for name, value in headers.items() if name not in _OF_CONNECTIONS}
        server.request(method, path, body, kept)
        answer = server.getresponse()
        content = answer.read()
        self.after(call)
        if fault == LOST:
            return False
        if failed and answer.status == 200 and isinstance(fault, Partly):
            content = protocols.finish(call, content, failed, fault)
        told = {n: v for n, v in answer.getheaders() if n.lower() not in _OF_CONNECTIONS and n.lower() != "x-amz-crc32"}
        client.sendall(_answer(answer.status, content, told))
        return True


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    told = {**(headers or {}), "Content-Length": str(len(body))}
    head = f"HTTP/1.1 {status} .\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return head.encode("latin-1") + b"\r\n" + body


def _cut(client: socket.socket) -> None:
    """Close so that the other side sees a reset, not an orderly end."""
    with suppress(OSError):  # it is closed already
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
