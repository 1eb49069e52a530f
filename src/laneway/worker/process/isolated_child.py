"""`IsolatedProcess`: an isolated process as its worker sees it.

It is started by exec, receives runs over a socketpair, and is killed together with all processes that it has started.
`isolation/main.py` is the code inside it. `isolation/pool.py` chooses the process for a run.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from ...errors import TimeLimitError
from ...jobs.settlement import how_it_ended
from .channel import (
    EndRequest,
    FromProcess,
    LoadFailure,
    LoadRequest,
    LoadSuccess,
    LogMessage,
    MessageChannel,
    RunBegin,
    RunHeartbeat,
    RunRequest,
    RunResult,
)
from .tree import kill_group, kill_marked, kill_tree, resident_bytes

#: A process that has not loaded the app in so many seconds never will.
START_S = 60.0
#: How what such a process has started is known.
MARK = "LANEWAY_ISOLATED"
#: How often a wait looks whether the process lives: what a run has forked may keep the connection open.
LOOK_S = 0.25
#: How long a process that has hung up may take to be gone.
GOING_S = 2.0


class StartError(Exception):
    """No process could be had to run something: the run has not begun."""


class ProcessDeathError(Exception):
    """The process has died in the middle of a run."""

    def __init__(self, ending: str) -> None:
        super().__init__(ending)


class IsolatedProcess:
    """A process that carries out one run at a time. One thread at a time has it; any may kill it."""

    def __init__(self, hello: LoadRequest, logged: Callable[[LogMessage], None]) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        #: In the environment of all that it starts.
        self._mark = f"{MARK}={os.getpid()}-{secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-P", "-m", "laneway.worker.isolation.main"]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*command, *map(str, (theirs.fileno(), lifeline, os.getpid()))],
                    env={**os.environ, name: value},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), lifeline],
                    process_group=0,  # a Ctrl-C of the terminal does not reach it, and a kill reaches all of it
                )
            except BaseException:
                ours.close()
                os.close(self._lifeline)
                raise
            finally:
                os.close(lifeline)
        # Nobody must wait for ever for one that does not listen.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(START_S), 0))
        self._wire: MessageChannel[FromProcess] = MessageChannel(ours, FromProcess)
        self._wire.send(hello)
        self._logged = logged
        self._started = time.monotonic()
        self._ready = False
        self._ending = threading.Lock()
        #: How many runs it has carried out.
        self.runs = 0
        self.idle_since = self._started

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident(self) -> int:
        """Its resident memory in bytes; 0 where that cannot be told."""
        return resident_bytes(self.pid)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended. It is not reaped by looking, so that its pid stays its own."""
        if self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # somebody else waits for all children of this program
            return False

    def get_ready(self) -> None:
        """Wait until the app is loaded; raises StartError if it cannot be."""
        if self._ready:
            return
        try:
            answer = self._receive(self._started + START_S - time.monotonic())
        except TimeoutError:
            raise StartError(f"it has not loaded the app within {START_S:g} s") from None
        except EOFError:
            raise StartError(f"it {how_it_ended(self.status())} while it was loading the app") from None
        if isinstance(answer, LoadFailure):
            raise StartError(answer.reason)
        assert isinstance(answer, LoadSuccess), answer
        self._ready = True

    def carry_out(self, work: RunRequest, limit_s: float | None, hang_limit_s: float) -> RunResult:
        """Have a run carried out. Raises StartError if it did not begin, ProcessDeathError or TimeLimitError if it did.

        The time counts from when the process says that it begins. One that is silent for too long is ended.
        """
        try:
            self._wire.send(work)
            answer = self._receive(START_S)
        except (OSError, EOFError):  # a TimeoutError is an OSError
            raise StartError("it did not begin the run") from None
        assert isinstance(answer, RunBegin), answer
        self.runs += 1
        try:
            answer = self._receive(limit_s, hang_limit_s)
        except TimeoutError:
            assert limit_s is not None, "without a limit there is no end to waiting"
            raise TimeLimitError(limit_s) from None
        except EOFError:
            raise ProcessDeathError(how_it_ended(self.status())) from None
        assert isinstance(answer, RunResult), answer
        return answer

    def _receive(self, timeout_s: float | None, hang_limit_s: float = float("inf")) -> FromProcess:
        """The next message that is no line for the log; raises TimeoutError, EOFError when the process is gone, or
        ProcessDeathError when it has been silent for too long."""
        heard = time.monotonic()
        due = None if timeout_s is None else heard + timeout_s
        while True:
            left_s = LOOK_S if due is None else min(LOOK_S, due - time.monotonic())
            lives = self.is_alive  # before the look: what it has said at its end is still heard
            message = self._wire.receive(max(0.0, left_s))
            if due is not None and not isinstance(message, RunResult) and time.monotonic() >= due:
                raise TimeoutError  # however much it has to say
            if message is None:
                if not lives:
                    raise EOFError
                if time.monotonic() - heard > hang_limit_s:
                    self.kill()
                    raise ProcessDeathError(f"was silent for {hang_limit_s:g} s, and was ended")
                continue
            heard = time.monotonic()
            if isinstance(message, LogMessage):
                self._logged(message)
            elif isinstance(message, RunHeartbeat):
                pass
            else:
                return message

    # -- its end ---------------------------------------------------------------------------------------

    def request_end(self) -> None:
        """Ask it to end as programs do; whoever asks looks after it, and kills it if it does not."""
        try:
            self._wire.send(EndRequest())
        except OSError:
            pass  # it is gone already

    def status(self) -> int:
        """How it has ended, as `subprocess` tells it. Whatever it leaves behind is ended too."""
        given_up = time.monotonic() + GOING_S
        while self.is_alive and time.monotonic() < given_up:
            time.sleep(0.002)
        return self.kill()

    def kill(self) -> int:
        """End it and all that it has started, at once. Returns its exit status."""
        with self._ending:
            if self._process.returncode is None:
                kill_tree(self.pid) if self.is_alive else kill_group(self.pid)
                kill_marked(self._mark)
            return self._process.wait()

    def close(self) -> None:
        """End it, and hang up: for whoever has it, because nobody else may be listening."""
        self.kill()
        self._wire.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        with self._ending:
            if self._process.returncode is None:
                self._process.send_signal(number)


def handle_line(logger: logging.Logger, line: LogMessage) -> None:
    """Put a line of an isolated process into the log of its worker."""
    record = logger.makeRecord(line.name, line.level, "", 0, line.text, (), None)
    record.created, record.msecs = line.created, line.created % 1 * 1000
    record.exc_text = line.traceback
    record.__dict__.update(line.fields)
    if logger.isEnabledFor(line.level):
        logger.handle(record)
