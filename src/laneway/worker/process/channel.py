"""A child's side of the connection to its supervisor: what it says, and that it ends when nobody listens any more.

Lines of JSON over a socket that the supervisor has handed down. The supervisor says two things here, in a letter each:
that another takes the child's place, and that it is to give up. It has signals for the rest, but two of those that come
together are handled in any order. Its end is the end of the connection.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any

import msgspec

from ... import sentinel
from ...jobs.data import Started
from .board import Board
from .tree import group_dies_with, kill_group

#: How the child is told where its ends are.
VARIABLE = "LANEWAY_LINK"
#: What the supervisor says.
RETIRE, GIVE_UP = b"r", b"g"


class Ends(msgspec.Struct, frozen=True):
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


class Joined(msgspec.Struct, tag="joined"):
    """The child is known to the broker under this id, from now on."""

    id: str
    #: When it asked for that, on the monotonic clock, which is the same for all processes of a machine.
    asked_at: float


class Beat(msgspec.Struct, tag="beat"):
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


class Leaving(msgspec.Struct, tag="leaving"):
    """The child ends in an orderly way; what still runs in it is not to blame for that, but for these."""

    blamed: list[Started] = []
    #: Whether it has left nothing unfinished.
    finished: bool = True


Message = Joined | Beat | Leaving

_encode = msgspec.json.Encoder().encode


class Link:
    """A child's connection to its supervisor."""

    def __init__(self, ends: Ends) -> None:
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
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Link | None:
        """The link that a supervisor has handed down; None without one. From here on this process ends with it."""
        text = environ.pop(VARIABLE, None)
        if text is None:
            return None
        ends = msgspec.json.decode(text, type=Ends)
        sentinel.watch()
        group_dies_with(ends.supervisor, ends.lifeline)
        link = cls(ends)
        threading.Thread(target=link._watch, name="laneway-link", daemon=True).start()
        return link

    def tell(self, message: Message) -> None:
        """Say something, without ever waiting: a supervisor that is stopped must not stop its children."""
        if os.getppid() != self._supervisor:  # something that it has forked keeps the connection open
            self._end()
        self.board.check()  # the socket's number may be another connection's by now
        with self._lock:
            if self._unsent and isinstance(message, Beat):
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
