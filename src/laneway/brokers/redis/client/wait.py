"""BlockingWaits: waits for a list element (BLPOP). Any thread can interrupt a wait, and no wait hangs.

Each wait has a connection of its own. `nudge` writes into the pipe of the wait. The wait then has Redis end the
BLPOP (CLIENT UNBLOCK) and reads the answer, so that an element which Redis popped at the same moment is not lost.
The connection is closed only if Redis does not answer that either, or forbids it.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .connections import Address, receive, send
from .errors import explain

#: Seconds that Redis gets to end a wait that was nudged.
NUDGE_S = 0.5
#: BLPOP takes 0, and old versions anything that they round to 0, for "for ever".
_LEAST_S = 0.01
#: An UNBLOCK that overtook its BLPOP had no effect, and is sent again after so many seconds.
_AGAIN_S = 0.02


class BlockingWaits:
    """The waits of one process on one server."""

    def __init__(self, address: Address, guard_s: float) -> None:
        self._address = address
        #: Seconds that Redis may be late.
        self._guard_s = guard_s
        self._lock = threading.Lock()
        self._idle: list[_WaitConnection] = []
        self._lines: set[_WaitConnection] = set()
        _waitings.add(self)

    def forget(self) -> None:
        """In a forked process: the lines belong to the parent, and only our copies are closed."""
        for line in self._lines:
            line.close()
        self._lock = threading.Lock()
        self._idle, self._lines = [], set()

    def wait(
        self, keys: Sequence[bytes | str], timeout_s: float, unless: Callable[[], bool] | None = None
    ) -> bytes | None:
        """The key of a list from which an element was taken; None after `timeout_s`, or when nudged."""
        line = None
        try:
            line = self._take()
            if unless is not None and unless():  # from here on a nudge rings
                return None
            answer = line.blpop(keys, max(timeout_s, _LEAST_S), self._guard_s)
        except (RedisError, OSError) as error:
            raise explain(error, self._address.place) from error
        finally:
            if line is not None:
                self._give(line)
        return answer

    def nudge(self) -> None:
        """End every wait now."""
        with self._lock:
            for line in self._lines.difference(self._idle):
                line.interrupt()

    def close(self) -> None:
        """End every wait, and close the connections."""
        with self._lock:
            idle, busy = self._idle, self._lines.difference(self._idle)
            self._idle, self._lines = [], set()
            for line in busy:
                line.interrupt()  # it is closed by its own thread, see _give
        for line in idle:
            line.close()

    def _take(self) -> _WaitConnection:
        while True:
            with self._lock:
                line = self._idle.pop() if self._idle else None
                if line is None:
                    line = _WaitConnection(self._address)
                    self._lines.add(line)
                    return line
            if line.is_usable():
                return line
            self._drop(line)

    def _give(self, line: _WaitConnection) -> None:
        with self._lock:
            if line in self._lines and line.is_free:
                if line.was_rung:  # nobody rings just now: that takes our lock
                    line.was_rung = False
                    line.is_interrupted()  # meant for the wait that has just ended
                self._idle.append(line)
                return
        self._drop(line)

    def _drop(self, line: _WaitConnection) -> None:
        with self._lock:
            self._lines.discard(line)
        line.close()


class _WaitConnection:
    """The connection of one wait, the pipe that ends it, and the connection that tells Redis so."""

    def __init__(self, address: Address) -> None:
        self._connection = address.make()
        self._other = address.make(NUDGE_S / 2)
        self._id: int | None = None
        self._lock = threading.Lock()
        #: Whether it is still connecting, when nothing can be lost by breaking it off.
        self._hasty = False
        #: Whether no BLPOP is under way.
        self.is_free = True
        #: Whether somebody has rung since it was taken.
        self.was_rung = False
        self._bell, self._rope = self._pipe = list(os.pipe())
        for end in self._pipe:
            os.set_blocking(end, False)

    def interrupt(self) -> None:
        """From any thread, while the line is in use."""
        self.was_rung = True
        try:
            os.write(self._rope, b"!")
        except BlockingIOError:
            pass  # it rings already
        with self._lock:
            if self._hasty and (sock := self._connection._sock):
                try:
                    sock.shutdown(socket.SHUT_RDWR)  # ends a read in its own thread
                except OSError:
                    pass  # it is closed already

    def is_interrupted(self) -> bool:
        """Whether somebody has rung since this was last asked."""
        try:
            return bool(os.read(self._bell, 65_536))
        except BlockingIOError:
            return False

    def is_usable(self) -> bool:
        """Whether the server has neither closed it nor said anything that nobody asked for."""
        try:
            return not self._connection.can_read(0)
        except (RedisError, OSError):
            return False

    def blpop(self, keys: Sequence[bytes | str], timeout_s: float, guard_s: float) -> bytes | None:
        self.is_free = False
        if self._id is None and not self._connect():
            return None
        send(self._connection, [("BLPOP", *keys, f"{timeout_s:.3f}")])
        if self._await(timeout_s + guard_s, or_bell=True):
            return self._popped()
        if not self.is_interrupted():
            raise RedisTimeoutError(f"its answer is more than {guard_s:g} s late")
        return self._popped() if self._unblock() else None

    def _connect(self) -> bool:
        """Connect and learn what Redis calls this connection; False if somebody rang meanwhile."""
        self._hasty = True
        try:
            send(self._connection, [("CLIENT", "ID")])
            answer = receive(self._connection, 1)[0]
        except (RedisError, OSError):
            if self.is_interrupted():
                return False
            raise
        with self._lock:
            self._hasty = False
        # Without the right to ask for it a nudge closes the connection, and may lose an element.
        self._id = answer if isinstance(answer, int) else 0
        return not self.is_interrupted()

    def _popped(self) -> bytes | None:
        answer = receive(self._connection, 1)[0]
        self.is_free = True
        if isinstance(answer, ResponseError):
            raise answer
        return answer[0] if answer else None

    def _unblock(self) -> bool:
        """Have Redis end the BLPOP; whether it has answered."""
        deadline = time.monotonic() + NUDGE_S
        try:
            while self._id and time.monotonic() < deadline:
                send(self._other, [("CLIENT", "UNBLOCK", self._id)])
                if isinstance(receive(self._other, 1)[0], Exception):
                    return False  # not allowed to
                if self._await(_AGAIN_S):
                    return True
        except (RedisError, OSError):
            self._other.disconnect()
        return False

    def _await(self, timeout_s: float, or_bell: bool = False) -> bool:
        """Whether an answer has begun to come; ends early when somebody rings, if asked to."""
        sock = self._connection._sock
        assert sock is not None
        if type(sock) is not socket.socket and self._connection.can_read(0):
            return True  # what TLS has already deciphered does not show in a poll
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if or_bell:
            poll.register(self._bell, select.POLLIN)
        ready = poll.poll(timeout_s * 1_000)
        return any(descriptor != self._bell for descriptor, _ in ready)

    def close(self) -> None:
        self._connection.disconnect()
        self._other.disconnect()
        while self._pipe:
            os.close(self._pipe.pop())

    __del__ = close


_waitings: weakref.WeakSet[BlockingWaits] = weakref.WeakSet()


def _forget_all() -> None:
    for waiting in tuple(_waitings):
        waiting.forget()


os.register_at_fork(after_in_child=_forget_all)
