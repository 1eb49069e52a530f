"""Sentinel: detects that a job has closed the file descriptors of this process.

A job may close descriptors that are not its own. The system then gives their numbers to other files. Code that still
writes under an old number writes into the wrong file: SQLite into a log, or a log into SQLite's file. A process to
which this has happened must settle nothing, store nothing and end.
"""

from __future__ import annotations

import os
import secrets
import tempfile

#: The two descriptors have the first numbers from here on that are free; the second a lower one if this process may not
#: have so many. A job that closes all descriptors up to some number, or from some number on, closes one of the two. 0
#: to 2 are for the program to write to.
LOW, HIGH = 3, 200


class Sentinel:
    """Two descriptors of a file that nothing reads or moves."""

    def __init__(self) -> None:
        import fcntl  # not on every system

        file = unnamed_file()
        #: Random: any other file under one of the numbers has another position.
        self._position = 1 + secrets.randbits(40)
        os.lseek(file, self._position, os.SEEK_SET)
        limit = os.sysconf("SC_OPEN_MAX")
        high = min(HIGH, limit // 2) if limit > 0 else HIGH
        self._fds = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, number) for number in (LOW, high)]
        os.close(file)

    def is_whole(self) -> bool:
        """False if one of them was closed, or its number is another file's by now."""
        try:
            for fd in self._fds:
                if os.lseek(fd, 0, os.SEEK_CUR) != self._position:  # the cheapest question that names the file
                    return False
        except OSError:
            return False
        return True

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


def unnamed_file(size: int = 0) -> int:
    """The descriptor of a new file. It is gone when the last process that has it open is."""
    try:
        fd = os.memfd_create("laneway")
    except (AttributeError, OSError):  # not on every system, and not allowed in every container
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)  # it takes up no more than is written to
    return fd


#: This process's own.
_sentinel: Sentinel | None = None


def watch() -> None:
    """Begin to watch the descriptors of this process, unless that has begun.

    (Two threads that begin at once make one too many, which harms nothing.)
    """
    global _sentinel
    if _sentinel is None and os.name == "posix":
        _sentinel = Sentinel()


def is_intact() -> bool:
    """False if anything has closed descriptors of this process since it watches them."""
    return _sentinel is None or _sentinel.is_whole()


def _after_fork_in_child() -> None:
    """A daemon may close all that it has inherited. It is watched again when it opens something of its own."""
    global _sentinel
    if _sentinel is not None and _sentinel.is_whole():
        _sentinel.close()
        _sentinel = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
