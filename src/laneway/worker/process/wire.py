"""What a worker and its isolated processes say to each other: messages, each after its length, over a socketpair.

The worker says Hello once, then Work for each run, and End. The process answers Ready or Unable, and to each Work
first Begun, then every second Living and whatever is logged meanwhile, then Ended.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from typing import Any, Generic, TypeVar

import msgspec

from ...jobs.data import Claim, Headers, NewJob
from ...jobs.settlement import Settlement, Verdict
from ...logs import Format

_LENGTH = struct.Struct("!Q")
_CHUNK = 262_144


class Hello(msgspec.Struct, tag=True):
    """How to find the app. It comes this way, and not by arguments, because these can be seen by everyone."""

    target: str
    url: str | None
    path: list[str]
    modules: list[str]
    #: What the worker's log does not show need not be sent.
    log_level: int
    #: In which format, and as which of several processes, the worker writes what others than the app have to say.
    others: tuple[Format, str | None] | None = None


class Work(msgspec.Struct, tag=True):
    """A run to be carried out: a claim of one call, or those of a batch."""

    claims: list[Claim]
    batch: bool
    #: What the worker's subscribers want those in the process to know.
    headers: Headers = {}


class End(msgspec.Struct, tag=True):
    """There is no more to be done: end as a program ends."""


class Ready(msgspec.Struct, tag=True):
    """The app is loaded."""


class Unable(msgspec.Struct, tag=True):
    """The app could not be loaded."""

    reason: str


class Begun(msgspec.Struct, tag=True):
    """From here on a death of the process is the run's doing."""


class Living(msgspec.Struct, tag=True):
    """The run goes on, and the interpreter is not held by it."""


class Logged(msgspec.Struct, tag=True):
    """A line for the app's log."""

    name: str
    level: int
    text: str
    created: float
    traceback: str | None = None
    #: The task and the id of the job that it is about, if it is about one.
    fields: dict[str, str] = {}


class Ruling(msgspec.Struct, array_like=True):
    """A settlement without its claim, which is told by its number."""

    claim: int
    verdict: Verdict
    delay_s: float
    retry_count: int
    error: str | None
    outbox: list[NewJob] | None
    done: int
    buried: int
    run: int

    @classmethod
    def of(cls, claim: int, given: Settlement) -> Ruling:
        return cls(
            claim,
            given.verdict,
            given.delay_s,
            given.retry_count,
            None if given.error is None else storable(given.error),
            given.outbox,
            given.done,
            given.buried,
            given.run,
        )


class Ended(msgspec.Struct, tag=True):
    """How the run has ended, and the events to be told of it, without their exceptions."""

    rulings: list[Ruling]
    events: list[dict[str, Any]]


FromWorker = Hello | Work | End
FromProcess = Ready | Unable | Begun | Living | Logged | Ended

Incoming = TypeVar("Incoming")


class Wire(Generic[Incoming]):
    """One end of the connection. One thread receives; any may send."""

    def __init__(self, connection: socket.socket, incoming: Any) -> None:
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._decode = msgspec.msgpack.Decoder(incoming).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._received = bytearray()
        self._sending = threading.Lock()

    def send(self, message: FromWorker | FromProcess) -> None:
        """Send a message; raises OSError when nobody is there to get it."""
        data = self._encode(message)
        with self._sending:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float | None = None) -> Incoming | None:
        """The next message; None if there is none within the time. Raises EOFError when the other end is gone."""
        while (message := self._next()) is None:
            # Not with the socket's own timeout: that would hold for those who send, too.
            if not self._poll.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            try:
                chunk = self._socket.recv(_CHUNK)
            except ConnectionError:
                chunk = b""
            if not chunk:
                raise EOFError
            self._received += chunk
        return message

    def _next(self) -> Incoming | None:
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        message: Incoming = self._decode(memoryview(self._received)[_LENGTH.size : end].tobytes())
        del self._received[:end]
        return message

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def storable(text: str) -> str:
    """Text without what cannot be sent: halves of surrogate pairs."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
