"""Messages between a supervisor and its children, and between a worker and its isolated processes.

`SupervisorLink` is the child's side: lines of JSON over an inherited socket. The supervisor sends two one-letter
commands here, *retire* and *give up*, because two signals that arrive together are handled in any order. For the rest
it uses signals. The child ends when the connection ends. `MessageChannel` sends msgpack messages, each after its
length, over a socketpair. The worker sends `LoadRequest` once, `RunRequest` for each run, and `EndRequest`. The
process answers `LoadSuccess` or `LoadFailure`, and to each run `RunBegin`, then a `RunHeartbeat` every second and its
`LogMessage`s, then `RunResult`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from ... import sentinel
from ...jobs.data import Claim, Headers, NewJob, StartedRun
from ...jobs.settlement import Settlement, Verdict
from ...logs import Format
from .board import Board
from .tree import group_dies_with, kill_group

#: How the child is told where its ends are.
VARIABLE = "LANEWAY_LINK"
#: What the supervisor says.
RETIRE, GIVE_UP = b"r", b"g"


class SupervisorHandles(msgspec.Struct, frozen=True):
    """What a child needs to know to find its supervisor."""

    socket: int
    #: A pipe that only the supervisor can write to, and never does.
    lifeline: int
    board: int
    slots: int
    size: int
    supervisor: int
    #: Which of the supervisor's processes it is, from 1 on.
    number: int
    #: How many there are.
    processes: int
    #: The number of jobs that it is to tell of at once, because another takes its place then; 0: none.
    tell_at: int = 0


class JoinMessage(msgspec.Struct, tag="joined"):
    """The child is known to the broker under this id, from now on."""

    id: str
    #: When it asked for that, on the monotonic clock, which is the same for all processes of a machine.
    asked_at: float


class HeartbeatMessage(msgspec.Struct, tag="beat"):
    """The child is alive, and has done so much."""

    processed: int
    failed: int
    running: int
    #: Why the broker is away, as far as the child can see; empty while it is there.
    away: str = ""
    #: Whether it answers, and refuses.
    refused: bool = False
    #: What it has counted, when metrics are wanted.
    tally: dict[str, Any] | None = None
    #: When it began the last renewal of its lease that succeeded, on the monotonic clock.
    renewed_at: float = 0.0
    #: Queues that are missing in the broker, and what it says.
    missing: dict[str, str] = {}


class LeaveMessage(msgspec.Struct, tag="leaving"):
    """The child ends in an orderly way; what still runs in it is not to blame for that, but for these."""

    blamed: list[StartedRun] = []
    #: Whether it has left nothing unfinished.
    finished: bool = True


Message = JoinMessage | HeartbeatMessage | LeaveMessage

_encode = msgspec.json.Encoder().encode


class SupervisorLink:
    """A child's connection to its supervisor."""

    def __init__(self, ends: SupervisorHandles) -> None:
        self.number, self.processes = ends.number, ends.processes
        self.board = Board(ends.board, ends.slots, ends.size)
        self._supervisor = ends.supervisor
        self.tell_at = ends.tell_at
        self._socket = socket.socket(fileno=ends.socket)
        self._unsent = b""
        #: What this process has counted; None: nobody wants to know.
        self.counted: Callable[[], dict[str, Any] | None] = lambda: None
        #: Called when the supervisor has another take this one's place; set by the worker.
        self.on_retire: Callable[[], None] = lambda: None
        #: Called when it waits for nothing any more; set by the worker.
        self.on_give_up: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        for fd in (ends.socket, ends.board):
            os.set_inheritable(fd, False)  # what a job starts must not keep them open when we are gone

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> SupervisorLink | None:
        """The link that a supervisor has handed down; None without one. From here on this process ends with it."""
        text = environ.pop(VARIABLE, None)
        if text is None:
            return None
        ends = msgspec.json.decode(text, type=SupervisorHandles)
        sentinel.watch()
        group_dies_with(ends.supervisor, ends.lifeline)
        link = cls(ends)
        threading.Thread(target=link._watch, name="laneway-link", daemon=True).start()
        return link

    def send(self, message: Message) -> None:
        """Say something, without ever waiting: a supervisor that is stopped must not stop its children."""
        if os.getppid() != self._supervisor:  # something that it has forked keeps the connection open
            self._end()
        self.board.check()  # the socket's number may be another connection's by now
        with self._lock:
            if self._unsent and isinstance(message, HeartbeatMessage):
                message_bytes = b""  # it has not heard the last one either, and the next one says more
            else:
                message_bytes = _encode(message) + b"\n"
            self._unsent += message_bytes
            with suppress(OSError):  # full, or nobody there: `_watch` sees that
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]

    def _watch(self) -> None:
        """End this process, and what its jobs have started, when the supervisor is gone."""
        with suppress(OSError):
            while letter := self._socket.recv(1):
                self.on_give_up() if letter == GIVE_UP else self.on_retire()
        self._end()

    def _end(self) -> None:
        if os.getpgrp() == os.getpid():
            kill_group(os.getpid())
        os._exit(1)


_LENGTH = struct.Struct("!Q")
_CHUNK = 262_144


class LoadRequest(msgspec.Struct, tag=True):
    """How to find the app. It comes this way, and not by arguments, because these can be seen by everyone."""

    target: str
    url: str | None
    path: list[str]
    modules: list[str]
    #: What the worker's log does not show need not be sent.
    log_level: int
    #: In which format, and as which of several processes, the worker writes what others than the app have to say.
    others: tuple[Format, str | None] | None = None


class RunRequest(msgspec.Struct, tag=True):
    """A run to be carried out: a claim of one call, or those of a batch."""

    claims: list[Claim]
    batch: bool
    #: What the worker's subscribers want those in the process to know.
    headers: Headers = {}


class EndRequest(msgspec.Struct, tag=True):
    """There is no more to be done: end as a program ends."""


class LoadSuccess(msgspec.Struct, tag=True):
    """The app is loaded."""


class LoadFailure(msgspec.Struct, tag=True):
    """The app could not be loaded."""

    reason: str


class RunBegin(msgspec.Struct, tag=True):
    """From here on a death of the process is the run's doing."""


class RunHeartbeat(msgspec.Struct, tag=True):
    """The run goes on, and the interpreter is not held by it."""


class LogMessage(msgspec.Struct, tag=True):
    """A line for the app's log."""

    name: str
    level: int
    text: str
    created: float
    traceback: str | None = None
    #: The task and the id of the job that it is about, if it is about one.
    fields: dict[str, str] = {}


class SettlementData(msgspec.Struct, array_like=True):
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
    def of(cls, claim: int, given: Settlement) -> SettlementData:
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


class RunResult(msgspec.Struct, tag=True):
    """How the run has ended, and the events to be told of it, without their exceptions."""

    rulings: list[SettlementData]
    events: list[dict[str, Any]]


FromWorker = LoadRequest | RunRequest | EndRequest
FromProcess = LoadSuccess | LoadFailure | RunBegin | RunHeartbeat | LogMessage | RunResult

Incoming = TypeVar("Incoming")


class MessageChannel(Generic[Incoming]):
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
