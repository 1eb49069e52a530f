"""`Board`: the runs that have begun in a process and not ended, readable after the process has died.

It is memory that the process shares with its supervisor. However the process ends, even by a kill in the middle of a
write, the board shows which runs were under way. It holds nothing else, and only its process writes to it. A process
whose descriptors a job has closed ends with that job still on the board. It can reach neither its supervisor nor its
broker, so it settles nothing. It does not log either, because its log's descriptor may belong to another file by now;
the supervisor logs the end.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct

import msgspec

from ... import sentinel
from ...jobs.data import StartedRun
from ...jobs.settlement import DESCRIPTORS_CLOSED

#: Room for one run: a queue's name, a key and an identity, each as long as they may be.
ENTRY = 1_024
#: A batch of more keys than fit is noted as far as it goes.
LARGEST = 1_048_576

_length = Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StartedRun]).decode


class Board:
    """A slot for each run that may be under way at once."""

    def __init__(self, fd: int, slots: int, size: int) -> None:
        self.fd = fd
        self.slots = slots
        self.size = size
        self._memory = mmap.mmap(fd, slots * size)
        self._free = deque(range(slots))
        self._process = os.getpid()
        #: Called when a job has closed descriptors of this process, or has forked it.
        self.on_closed: Callable[[], None] = lambda: os._exit(DESCRIPTORS_CLOSED)

    @classmethod
    def make(cls, concurrency: int, largest_batch: int = 1) -> Board:
        """A new one, for a process with so many runs at once, each of at most so many keys."""
        size = min(LARGEST, ENTRY * largest_batch)
        return cls(sentinel.unnamed_file(concurrency * size), concurrency, size)

    def begin(self, runs: Sequence[StartedRun]) -> int:
        """Note what is about to be run, all of it together. Returns the slot, to be cleared at the end."""
        try:
            slot = self._free.popleft()
        except IndexError:  # one that ended the worker keeps its slot
            return -1
        data = _encode(runs)
        while len(data) > self.size - _length.size:
            runs = runs[: len(runs) // 2]
            data = _encode(runs)
        start = slot * self.size
        self._memory[start + _length.size : start + _length.size + len(data)] = data
        _length.pack_into(self._memory, start, len(data))  # last: if we die before it, nothing had begun
        return slot

    def end(self, slot: int) -> None:
        """What was noted there has ended, whichever way; unless it has closed descriptors of this process."""
        if slot >= 0:
            self.check()
            _length.pack_into(self._memory, slot * self.size, 0)
            self._free.append(slot)

    def check(self) -> None:
        """End this process, with all that is noted, if a job has closed its descriptors; or if a job has forked it.

        A forked process whose job returns, instead of ending it, would run all that its parent runs once more.
        """
        if not sentinel.is_intact() or os.getpid() != self._process:
            self.on_closed()

    def started(self) -> list[StartedRun]:
        """All that has begun and not ended."""
        found: list[StartedRun] = []
        for start in range(0, self.slots * self.size, self.size):
            (length,) = _length.unpack_from(self._memory, start)
            if length:
                with suppress(msgspec.DecodeError):  # of a process that lives, and writes another one there
                    found += _decode(self._memory[start + _length.size : start + _length.size + length])
        return found

    def close(self) -> None:
        """Let go of it in this process."""
        self._memory.close()
        os.close(self.fd)
