"""BlockingWaits: waits for list elements (BLPOP). Any thread can interrupt a wait, and no wait hangs.

A wait has a connection of its own, on a Cluster one for each slot, because Redis refuses a BLPOP for two slots. `nudge`
writes into the pipe of the wait. The wait then has Redis end the BLPOP (CLIENT UNBLOCK) and reads the answer, so that
an element which Redis popped at the same moment is not lost. On a Cluster the first answer ends the other BLPOPs in the
same way. The connection is closed only if Redis does not answer that either, or forbids it.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from . import redis_py
from .connections import Address, Key, receive, send
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
        self.place = address.place
        #: Seconds that Redis may be late.
        self.guard_s = guard_s
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
                line.interrupt()  # it is closed by its own thread, see `give`
        for line in idle:
            line.close()

    def take(self) -> _WaitConnection:
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

    def give(self, line: _WaitConnection) -> None:
        with self._lock:
            if line in self._lines and line.is_free:
                if line.was_interrupted:  # no thread interrupts it now, because that takes our lock
                    line.was_interrupted = False
                    line.is_interrupted()  # reads what was meant for the wait that has just ended
                self._idle.append(line)
                return
        self._drop(line)

    def _drop(self, line: _WaitConnection) -> None:
        with self._lock:
            self._lines.discard(line)
        line.close()


def wait_for_any(
    parts: Sequence[tuple[BlockingWaits, Sequence[Key]]], timeout_s: float, unless: Callable[[], bool] | None = None
) -> set[bytes]:
    """The keys of lists from which an element was taken; none after `timeout_s`, or when nudged.

    Each part is a server and keys that one BLPOP may name. Returns as soon as one part has an element: another part may
    have popped one, too. `unless` is called when a nudge can no longer be missed. If it returns true, there is no wait.
    """
    lines: list[_WaitConnection] = []
    popped: list[bytes | None] = []
    guard_s, place = parts[0][0].guard_s, parts[0][0].place
    try:
        for waits, _ in parts:
            lines.append(waits.take())
        if unless is not None and unless():
            return set()
        for line, (_, keys) in zip(lines, parts, strict=True):
            place = line.place
            if not line.begin(keys, max(timeout_s, _LEAST_S)):
                break  # a nudge
        else:
            _await_any(lines, timeout_s, guard_s)
        for line in lines:
            place = line.place
            popped.append(line.end())
    except (redis_py.RedisError, OSError) as error:
        raise explain(error, place) from error
    finally:
        for line, (waits, _) in zip(lines, parts, strict=False):
            waits.give(line)
    return {key for key in popped if key is not None}


def _await_any(lines: Sequence[_WaitConnection], timeout_s: float, guard_s: float) -> None:
    """Return when an answer begins to come or a line is interrupted; raise TimeoutError if neither happens."""
    if any(line.has_deciphered() for line in lines):
        return
    poll = select.poll()
    for line in lines:
        for descriptor in line.descriptors():
            poll.register(descriptor, select.POLLIN)
    if not poll.poll((timeout_s + guard_s) * 1_000):
        raise TimeoutError(f"its answer is more than {guard_s:g} s late")


class _WaitConnection:
    """The connection of one wait, the pipe that ends it, and the connection that tells Redis so."""

    def __init__(self, address: Address) -> None:
        self.place = address.place
        self._connection = address.make()
        self._other = address.make(NUDGE_S / 2)
        self._id: int | None = None
        self._lock = threading.Lock()
        #: Whether it is still connecting, when nothing can be lost by breaking it off.
        self._hasty = False
        #: Whether another wait may use it: it did not fail, and no BLPOP is under way.
        self.is_free = True
        self._is_waiting = False
        #: Whether it was interrupted since it was taken.
        self.was_interrupted = False
        self._nudge_end, self._other_end = self._pipe = list(os.pipe())
        for end in self._pipe:
            os.set_blocking(end, False)

    def interrupt(self) -> None:
        """From any thread, while the line is in use."""
        self.was_interrupted = True
        try:
            os.write(self._other_end, b"!")
        except BlockingIOError:
            pass  # it is interrupted already
        with self._lock:
            if self._hasty and (sock := self._connection._sock):
                try:
                    sock.shutdown(socket.SHUT_RDWR)  # ends a read in its own thread
                except OSError:
                    pass  # it is closed already

    def is_interrupted(self) -> bool:
        """Whether it was interrupted since this was last asked."""
        try:
            return bool(os.read(self._nudge_end, 65_536))
        except BlockingIOError:
            return False

    def is_usable(self) -> bool:
        """Whether the server has neither closed it nor sent anything unasked."""
        try:
            return not self._connection.can_read(0)
        except (redis_py.RedisError, OSError):
            return False

    def begin(self, keys: Sequence[Key], timeout_s: float) -> bool:
        """Send a BLPOP. False: it was interrupted before, while it connected."""
        self.is_free = False
        if self._id is None and not self._connect():
            return False
        self._is_waiting = True
        send(self._connection, [("BLPOP", *keys, f"{timeout_s:.3f}")])
        return True

    def end(self) -> bytes | None:
        """The key of the list from which the BLPOP took an element, if it did. Has Redis end a BLPOP that waits."""
        if not self._is_waiting or not (self._has_answer(0) or self._unblock()):
            return None
        answer = receive(self._connection, 1)[0]
        self.is_free, self._is_waiting = True, False
        if isinstance(answer, Exception):
            raise redis_py.make("ResponseError", str(answer)) from answer
        return answer[0] if answer else None

    def _connect(self) -> bool:
        """Connect and learn what Redis calls this connection; False if it was interrupted meanwhile."""
        self._hasty = True
        try:
            send(self._connection, [("CLIENT", "ID")])
            answer = receive(self._connection, 1)[0]
        except (redis_py.RedisError, OSError):
            if self.is_interrupted():
                return False
            raise
        with self._lock:
            self._hasty = False
        # Without the right to ask for it a nudge closes the connection, and may lose an element.
        self._id = answer if isinstance(answer, int) else 0
        return not self.is_interrupted()

    def _unblock(self) -> bool:
        """Have Redis end the BLPOP; whether it has answered."""
        deadline = time.monotonic() + NUDGE_S
        try:
            while self._id and time.monotonic() < deadline:
                send(self._other, [("CLIENT", "UNBLOCK", self._id)])
                if isinstance(receive(self._other, 1)[0], Exception):
                    return False  # not allowed to
                if self._has_answer(_AGAIN_S):
                    return True
        except (redis_py.RedisError, OSError):
            self._other.disconnect()
        return False

    def descriptors(self) -> tuple[int, int]:
        """Where an answer shows, and a nudge."""
        sock = self._connection._sock
        assert sock is not None
        return sock.fileno(), self._nudge_end

    def has_deciphered(self) -> bool:
        """Whether an answer is there that does not show in a poll, because TLS has already deciphered it."""
        return type(self._connection._sock) is not socket.socket and self._connection.can_read(0)

    def _has_answer(self, timeout_s: float) -> bool:
        """Whether an answer begins to come in this time."""
        if self.has_deciphered():
            return True
        poll = select.poll()
        poll.register(self.descriptors()[0], select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000))

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
