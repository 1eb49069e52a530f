"""`Reloader`: runs a command, and restarts it when the user's code changes.

The reloader is a process that never imports the user's code. It runs the same command as a child process and watches
the files by time, size and inode, without reading them. On a change it stops the command as a worker stops, and
starts it again. A socket ties the two processes. Over it the command reports that it has begun to serve; the end of
the connection tells each process that the other is gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from ..worker.process.tree import die_with_parent, kill_tree
from .output import clean

#: Folders with other people's code, or with what is made from ours. Hidden ones are skipped too.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

#: What tells that a file is not the one that it was; also when it was saved by renaming another one to its name.
Mark = tuple[int, int, int]
Files = dict[str, Mark]


def places(target: str, more: Iterable[str]) -> list[Path]:
    """What to watch for a target: the folder one is in, the target's own, and what was named besides."""
    found = [Path.cwd()]
    own = _folder_of(target.partition(":")[0] if not target.endswith(".py") else target)
    if own is not None and not SKIPPED & set(own.parts):
        found.append(own)
    for each in more:
        if not Path(each).exists():
            raise ConfigError(f"There is no file or folder {each} to watch.")
        found.append(Path(each).resolve())
    return list(dict.fromkeys(found))


def _folder_of(place: str) -> Path | None:
    """The folder that a target's code is imported from; None if that is not to be found without importing it."""
    if place.endswith(".py") or os.sep in place:
        folder = Path(place).resolve().parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        return folder
    name = place.partition(".")[0]
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *_given_path()]) if name.isidentifier() else None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.origin else None


def _given_path() -> list[str]:
    """The folders that somebody has put on Python's path, without those of Python itself."""
    own = (sys.prefix, sys.base_prefix)
    return [folder for folder in sys.path if folder and not folder.startswith(own)]


def snapshot(roots: Iterable[Path]) -> Files:
    """Every watched file as it is now: Python files of folders, and files that were named, whatever they are."""
    files: Files = {}
    seen: set[str] = set()
    for root in roots:
        if root.is_dir():
            _look_into(str(root), files, seen)
        else:
            mark = _mark(root)
            if mark is not None:
                files[str(root)] = mark
    return files


def _look_into(folder: str, files: Files, seen: set[str]) -> None:
    """Add what is in a folder and below it. Links to folders are not followed: they may lead round in circles."""
    left = [folder]
    while left:
        folder = left.pop()
        if folder in seen:
            continue
        seen.add(folder)
        found: Files = {}
        below: list[str] = []
        for entry in _entries(folder):
            name = entry.name
            if name == "pyvenv.cfg":
                break  # a virtual environment
            if name.endswith(".py"):
                mark = _mark(entry)
                if mark is not None:
                    found[entry.path] = mark
            elif name[0] != "." and name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
        else:
            files.update(found)
            left += below


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # gone meanwhile, or not ours to read


def _mark(file: os.DirEntry[str] | Path) -> Mark | None:
    try:
        found = file.stat()
    except OSError:
        return None  # gone meanwhile, or a link to nowhere
    return found.st_mtime_ns, found.st_size, found.st_ino


def changes(before: Files, now: Files) -> list[str]:
    """The files that are not as they were, that are new or that are gone."""
    if before == now:
        return []
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


#: Tells a process that it is run by a reloader: "PID:DESCRIPTOR", or "below" in what that one starts.
VARIABLE = "LANEWAY_RELOADER"
#: Between two looks at the files; longer if looking takes long, so that it uses 5 % of a core at most.
LOOK_S = 0.25
LOOK_SHARE = 0.05
#: Files must have been left alone for so long, or one save after another would each start it again; but no longer
#: than that is waited for.
QUIET_S = 0.2
LONGEST_BURST_S = 5.0
#: What running jobs get to finish, unless the command line says otherwise.
SHUTDOWN_TIMEOUT_S = 5.0
#: What the command gets beyond its shutdown timeout, and when it was told to give up, before it is killed.
SPARE_S = 10.0


class Reloader:
    """Runs a command, and again when one of the files below `roots` changes."""

    def __init__(
        self,
        command: Sequence[str],
        roots: Sequence[Path],
        *,
        patience_s: float,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._command = list(command)
        self._roots = list(roots)
        self._patience_s = patience_s + SPARE_S
        self._say = say or _print
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        #: Whether the command that runs has begun to serve, and whether one ever has.
        self._serves = self._has_served = False
        #: The signals to stop that have come.
        self._stops: list[int] = []
        self._files: Files = {}
        self._look_s = LOOK_S
        #: Readable when a signal has come.
        self._woken: socket.socket

    def run(self) -> int:
        """Run until told to stop, or until the very first start fails. Returns the exit code."""
        with self._signals():
            try:
                return self._run()
            finally:
                if self._process is not None:  # only if something of ours is wrong
                    kill_tree(self._process.pid)

    def _run(self) -> int:
        self._look()
        self._start()
        while not self._stops:
            self._wait(self._look_s)
            code = self._ended()
            if code is not None and (code == 0 or not self._has_served):
                return code if code >= 0 else 1
            if code is not None:
                why = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
                self._say(f"The worker {why}; it starts again when a file changes.")
            before = self._files
            if changed := self._changed():
                self._say(_sentence(changed))
                if not self._stop():
                    break
                forget_compiled(changes(before, self._look()))
                self._start()
        return self._end()

    # -- the files -------------------------------------------------------------------------------------

    def _look(self) -> Files:
        began = time.monotonic()
        self._files = snapshot(self._roots)
        self._look_s = max(LOOK_S, (time.monotonic() - began) / LOOK_SHARE)
        return self._files

    def _changed(self) -> list[str]:
        """What has changed since the last look, once it is quiet again."""
        before = self._files
        if not changes(before, self._look()):
            return []
        until = time.monotonic() + LONGEST_BURST_S
        while not self._stops and time.monotonic() < until:
            last = self._files
            self._wait(QUIET_S)
            if not changes(last, self._look()):
                break
        return changes(before, self._files)

    # -- the command -----------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        environ = {**os.environ, VARIABLE: f"{os.getpid()}:{theirs.fileno()}"}
        # A process group of its own: Ctrl-C is the reloader's to pass on, or the command would get it twice. Such a
        # process cannot read from the terminal, so it is given nothing to read from.
        self._process = subprocess.Popen(
            self._command, env=environ, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
        )
        theirs.close()
        self._link, self._serves = ours, False

    def _ended(self) -> int | None:
        """The exit code of the command, once, if it has ended."""
        if self._process is None or self._process.poll() is None:
            return None
        code = self._process.returncode
        self._process = None
        if self._link is not None:
            self._link.close()
            self._link = None
        return code

    def _wait(self, seconds: float) -> None:
        """Wait; shorter if a signal comes, or the command begins to serve or ends."""
        sources = [self._woken, *([self._link] if self._link else [])]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._woken in ready:
            self._woken.recv(100)
        if self._link is not None and self._link in ready:
            if self._link.recv(1):
                self._serves = self._has_served = True
            else:
                self._link.close()
                self._link = None
                self._await_end(SPARE_S)  # it is ending

    def _await_end(self, seconds: float) -> bool:
        """Wait for the command's end; also while it is told to stop. False: it goes on."""
        until = time.monotonic() + seconds
        while self._process is not None and self._process.poll() is None:
            if time.monotonic() >= until:
                return False
            self._pass_on_second_interrupt()
            time.sleep(0.02)
        return True

    def _stop(self) -> bool:
        """Have the command stop, as a worker stops. False: meanwhile somebody wants the reloader to stop too."""
        if self._process is not None:
            self._report(signal.SIGTERM)
            if not self._await_end(self._patience_s):
                kill_tree(self._process.pid)
                self._process.wait()
            self._ended()
        return not self._stops

    def _end(self) -> int:
        """Told to stop: stop the command, and end with its exit code."""
        if self._process is None:
            return 0
        process, serves = self._process, self._serves
        self._stop()
        # One that was still importing knew nothing of signals, and had nothing to finish.
        if not serves or process.returncode == -signal.SIGTERM:
            return 0
        return process.returncode if process.returncode >= 0 else 1

    def _report(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _pass_on_second_interrupt(self) -> None:
        """Again and again: the command wants two as well, and two that come together may be one."""
        if self._stops.count(signal.SIGINT) > 1:
            self._report(signal.SIGINT)

    # -- signals ---------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Note the signals to stop; pass on those that ask for stacks."""
        self._woken, waking = socket.socketpair()
        waking.setblocking(False)
        handlers: dict[int, Any] = {
            **dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP), self._stopping),
            **dict.fromkeys((signal.SIGUSR2, signal.SIGTTIN), lambda number, frame: self._report(number)),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        wakeup = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._woken.close()
            waking.close()

    def _stopping(self, number: int, frame: object) -> None:
        self._stops.append(number)


class ReloaderClient:
    """The reloader, as the command that it runs sees it."""

    def __init__(self, parent: int, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._link = socket.socket(fileno=descriptor)
        die_with_parent(parent)
        threading.Thread(target=self._watch, name="laneway-reloader", daemon=True).start()

    def serving(self) -> None:
        """All is well with what was asked for: from here on, an end is not the end of the reloader."""
        self._link.sendall(b"1")

    def _watch(self) -> None:
        # Where the kernel does not end us with our parent, this does.
        with suppress(OSError):
            self._link.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)


def reloaded() -> ReloaderClient | None:
    """The reloader that runs this process, if there is one. To be asked before the user's code is imported."""
    given = os.environ.get(VARIABLE, "")
    if ":" not in given:
        return None
    os.environ[VARIABLE] = "below"
    parent, _, descriptor = given.partition(":")
    return ReloaderClient(int(parent), int(descriptor))


def is_below_reloader() -> bool:
    """Whether some process above this one is a reloader: then this one is not to be another."""
    return VARIABLE in os.environ


def forget_compiled(files: Iterable[str]) -> None:
    """Remove what Python keeps compiled of these files.

    It takes the kept for the file's own if size and second of the last change are the same, and an editor is quicker.
    """
    for file in files:
        if file.endswith(".py"):
            with suppress(OSError):
                Path(cache_from_source(file)).unlink(missing_ok=True)


def this_command() -> list[str]:
    """The command line of this process, Python's own options included."""
    return [sys.executable, *sys.orig_argv[1:]]


def _sentence(changed: list[str]) -> str:
    path = Path(changed[0])
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    what = "changed" if more or path.exists() else "is gone"
    return f"{shown}{more} {what}; starting again."


def _print(sentence: str) -> None:
    click.echo(clean(sentence), err=True)
