"""The history of many runs, as lines of a file that survive a kill; and its reader, for the checkers.

    S key seq job attempt token t pid     a run began
    E key seq job attempt token t pid     it ended well
    F key seq job attempt token t pid     it failed
    C key - - - token t pid               the key was claimed
    A key - - - token t pid               a settlement was taken
    R key - - - token t pid               a settlement was refused
    B key seq job - token t pid           the call was buried
    K - - - - - t pid                     this process is about to be killed
    P - - - - - t pid                     this process is about to be stopped, for longer than its lease

Each line is one `os.write` on a file opened with O_APPEND. So lines of several processes never mix, and their order
is the order of the events. Notes are on the safe side: a start is noted before it happens, an end after it has
happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import quote, unquote

import msgspec

What = Literal["S", "E", "F", "C", "A", "R", "B", "K", "P"]
_LETTERS = get_args(What)


class HistoryEvent(msgspec.Struct, frozen=True):
    """One line of a history."""

    what: What
    key: str = ""
    #: The number of the call among those of its key.
    seq: int = -1
    job: str = ""
    attempt: int = 0
    token: int = 0
    t: float = 0.0
    pid: int = 0

    def line(self) -> str:
        """As it is written."""
        words = (self.key, self.seq, self.job, self.attempt, self.token, repr(self.t), self.pid)
        return " ".join((self.what, *(quote(str(word), safe="-.:#/") or "-" for word in words)))


class History:
    """Appends to a history; every process has its own, on the same file."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._clock = clock
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)

    def note(
        self,
        what: What,
        key: str = "",
        seq: int = -1,
        job: str = "",
        attempt: int = 0,
        token: int = 0,
        *,
        pid: int | None = None,
    ) -> None:
        """Write one line."""
        event = HistoryEvent(what, key, seq, job, attempt, token, self._clock(), os.getpid() if pid is None else pid)
        os.write(self._file, (event.line() + "\n").encode())

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def read_history(path: str | Path) -> list[HistoryEvent]:
    """All events, in order. A last line without its end is left out: its writer was killed."""
    text = Path(path).read_text(encoding="utf-8")
    return [parse_line(line) for line in text.split("\n")[:-1]]


def parse_line(line: str) -> HistoryEvent:
    """The event that a line tells of; ValueError if it tells of none."""
    words = [unquote(word) for word in line.split(" ")]
    if len(words) != 8 or words[0] not in _LETTERS:
        raise ValueError(f"{line!r} is not a line of a history.")
    what, key, seq, job, attempt, token, t, pid = words
    key, job = ("" if word == "-" else word for word in (key, job))
    return HistoryEvent(cast(What, what), key, int(seq), job, int(attempt), int(token), float(t), int(pid))
