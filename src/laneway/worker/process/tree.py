"""Ties a process to its parent, and kills the processes that it leaves behind.

A process must not outlive its parent. On Linux the kernel ensures that, by a signal when a pipe ends or by `prctl`.
Elsewhere the code that watches the connection to the parent does. Left-behind processes are found on Linux by a mark
in their environment; elsewhere only those of the same process group are found.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1

#: Not even SIGKILL ends a process that waits for a disk; nobody waits for it any longer than this.
PATIENCE_S = 2.0
#: Fields of /proc/PID/stat behind the name, which may hold anything and ends with the last bracket.
_STATE, _PARENT = 0, 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with SIGKILL when `parent` ends, whatever this one is doing then.

    To be exact, when the parent's thread ends that started this process.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has died before the kernel was told
        os._exit(1)


def group_dies_with(parent: int, pipe: int) -> None:
    """Have the kernel end this process and its group with SIGKILL when `parent` ends, who alone can write to `pipe`.

    Nothing is ever written to it: its end is the signal. It takes along what a job has started, as far as that has
    stayed in the group. Not together with `die_with_parent`, which may come first and then leaves those alone.
    """
    if sys.platform != "linux" or os.getpgrp() != os.getpid():
        die_with_parent(parent)
        return
    os.set_inheritable(pipe, False)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent:  # it has died before the kernel was told
        os._exit(1)


def descendants(root: int) -> list[int]:
    """Every process that descends from `root`, itself not included; nothing where there is no /proc."""
    parents: dict[int, list[int]] = {}
    for entry in _processes():
        if (fields := _stat(entry)) is not None:
            parents.setdefault(int(fields[_PARENT]), []).append(int(entry))
    found, new = [], [root]
    while new:
        new = [child for parent in new for child in parents.get(parent, ())]
        found += new
    return found


def kill_tree(root: int) -> None:
    """End a process, its process group and all that descends from it, and do not ask."""
    # Stopped first, so that it cannot start another one while we look.
    _signal(root, signal.SIGSTOP)
    below = descendants(root)
    for pid in below:
        _signal(pid, signal.SIGKILL)
    kill_group(root)
    _signal(root, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """End what is left of a process group, also when its leader is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """End every process that has inherited `mark`, NAME=value, in its environment.

    It finds what has left its group, and what has lost its parent: all but those that were given another environment.
    """
    wanted, own = mark.encode(), os.getpid()
    until = time.monotonic() + PATIENCE_S
    while found := [pid for pid in map(int, _processes()) if pid != own and _has_inherited(pid, wanted)]:
        for pid in found:
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(0.001)  # those that are not quite gone are seen again


def resident_bytes(pid: int) -> int:
    """A process's resident memory; 0 where that cannot be told."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _processes() -> list[str]:
    try:
        return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _has_inherited(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, or somebody else's; a zombie has none
        return False


def _stat(pid: str) -> list[str] | None:
    try:
        # As bytes: the name of somebody's process may be cut off in the middle of a character.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:  # gone meanwhile
        return None


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
