"""The sentinel: a file descriptor that shows whether anything has closed the descriptors of this process.

A job may close descriptors that are not its own, and so may a program that becomes a daemon. The numbers are then
given to other files, and whatever still writes under an old number writes into one of those.
"""

from __future__ import annotations

import os
import secrets
import tempfile


class Sentinel:
    """Watches one descriptor, whose file nothing reads or moves."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        #: Random: any other file under this number has another position.
        self._position = os.lseek(fd, 0, os.SEEK_CUR)

    @classmethod
    def make(cls, size: int = 0) -> Sentinel:
        """A new one. Its file has no name, and is gone when the last process that has it open is."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("laneway")
        else:  # not every system has it
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, size)  # it takes up no more than is written to
        os.lseek(fd, 1 + secrets.randbits(40), os.SEEK_SET)
        return cls(fd)

    def is_open(self) -> bool:
        """False if the descriptor was closed, or its number is another file's by now."""
        try:
            return os.lseek(self.fd, 0, os.SEEK_CUR) == self._position  # the cheapest question that names the file
        except OSError:
            return False

    def close(self) -> None:
        os.close(self.fd)
