"""`Child`: a worker process as its supervisor sees it: its heartbeats, its board, its age and its end.

It is started by exec, never by fork: a supervisor has threads, the user's imports may have some too, and a fork
copies their locks in any state. The child sends its messages over a socket. Its board shows which runs it had begun.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import msgspec

from ...clock import Clock
from ...config import WorkerOptions
from ...jobs.data import StartedRun
from .board import Board
from .channel import GIVE_UP, RETIRE, VARIABLE, HeartbeatMessage, JoinMessage, LeaveMessage, Message, SupervisorHandles
from .tree import resident_bytes

#: Limits differ by up to this part of them from child to child, so that not all are replaced at once.
SPREAD = 0.2
#: A child that has said goodbye is given so long to be gone; and one that has hung up without a word.
LINGERS_S = 10.0
DEAF_S = 1.0
#: A child that lives says so every second; after so long a silence it does not count on being asked.
MUTE_S = 3.0
#: What is longer is not ours.
LONGEST_MESSAGE = 16_777_216
#: Children that are too large from the beginning are replaced no more often than this.
HOPELESS_S = 60.0
#: How what a child has started is known.
MARK = "LANEWAY_PROCESS"

_decode = msgspec.json.Decoder(Message).decode


class Child:
    """A child process, from its start until its end is dealt with."""

    def __init__(
        self,
        command: Sequence[str],
        options: WorkerOptions,
        number: int,
        largest_batch: int,
        clock: Clock,
        *,
        keeps: bool = False,
    ) -> None:
        self.number = number
        #: Whether its claims are kept by itself alone, and not by the supervisor's renewals.
        self.keeps = keeps
        self._clock = clock
        self._options = options
        spread = 1 + SPREAD * random.random()
        self._max_jobs = (options.max_jobs or float("inf")) * spread
        self._max_age_s = (options.max_age_s or float("inf")) * spread
        self._max_memory = (options.max_memory or float("inf")) * spread
        #: In the environment of all that it starts.
        self.mark = f"{MARK}={os.getpid()}-{number}-{secrets.token_hex(8)}"
        name, _, value = self.mark.partition("=")
        with ExitStack() as undo, ExitStack() as theirs:
            self.board = Board.make(options.concurrency, largest_batch)
            undo.callback(self.board.close)
            self._socket, their_socket = socket.socketpair()
            undo.enter_context(self._socket)
            theirs.enter_context(their_socket)
            lifeline, self._lifeline = os.pipe()
            undo.callback(os.close, self._lifeline)
            theirs.callback(os.close, lifeline)
            ends = SupervisorHandles(
                socket=their_socket.fileno(),
                lifeline=lifeline,
                board=self.board.fd,
                slots=self.board.slots,
                size=self.board.size,
                supervisor=os.getpid(),
                number=number,
                processes=options.processes,
                tell_at=0 if options.max_jobs is None else math.ceil(self._max_jobs),
            )
            self._process = subprocess.Popen(
                command,
                env={**os.environ, VARIABLE: msgspec.json.encode(ends).decode(), name: value},
                pass_fds=(ends.socket, lifeline, self.board.fd),
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the supervisor, and all that its jobs start can be ended with it
            )
            undo.pop_all()  # it is there: all of this is closed when it has ended
        self._socket.setblocking(False)
        self._heard = b""
        self.pid = self._process.pid
        self.started_at = self.heard_at = clock.monotonic()
        #: The ids that it has had at the broker; it goes by the last one.
        self.ids: list[str] = []
        #: When its lease was last renewed by the supervisor, or it joined; or, if it keeps its claims itself, when it
        #: last did.
        self.renewed_at = self.started_at
        #: Since when it has been seen that it does not.
        self._unkept_since: float | None = None
        self.beat = HeartbeatMessage(0, 0, 0)
        self.leaving: LeaveMessage | None = None
        self.stopped = False
        #: An id whose lease was lost without our doing.
        self.lost = ""
        #: Whether that was because the broker was emptied.
        self.forgotten = False
        #: Told to finish what it has, because another takes its place.
        self.retiring = False
        #: Ended by the supervisor, and whether what it ran is to blame.
        self.given_up = False
        self.blameless = False
        self.slow_to_start = False
        self._first_used = 0
        self.lingered = False
        #: When it hung up, though it had not said goodbye.
        self.deaf_since: float | None = None

    def fileno(self) -> int:
        """The socket, for those who wait for several children."""
        return self._socket.fileno()

    @property
    def id(self) -> str:
        """What the broker knows it by; empty until it has joined."""
        return self.ids[-1] if self.ids else ""

    # -- listening -------------------------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether it may have something to say."""
        return self.leaving is None and self.deaf_since is None

    def listen(self) -> None:
        """Take in what it has said. What is no message is passed over: a job may have written it."""
        while self.deaf_since is None:
            try:
                data = self._socket.recv(65_536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data or len(self._heard) > LONGEST_MESSAGE:
                self.deaf_since = self._clock.monotonic()
                return
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._take_in(_decode(line))

    def _take_in(self, message: Message) -> None:
        self.heard_at = self._clock.monotonic()
        match message:
            case JoinMessage(id=name, asked_at=asked_at):
                self.ids.append(name)
                self.renewed_at = min(asked_at, self.heard_at)
            case HeartbeatMessage():
                self.beat = message
                if self.keeps:
                    self.renewed_at = max(self.renewed_at, min(message.renewed_at, self.heard_at))
            case LeaveMessage():
                self.leaving = message

    def note(self, status: int) -> int | None:
        """Take in what `waitpid` has said of it: its exit status, negative for a signal, or None while it lives."""
        if os.WIFSTOPPED(status):
            self.stopped = True
        elif os.WIFCONTINUED(status):
            self.stopped = False
        else:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            return self._process.returncode
        return None

    # -- judging ---------------------------------------------------------------------------------------

    def trouble(self, now: float) -> str | None:
        """Why its lease must not be renewed; None: all is well."""
        if self.stopped:
            return "is stopped"
        if self.ids and now - self.heard_at > self._options.hang_limit_s:
            return f"has been silent for {now - self.heard_at:.0f} s"
        if self.deaf_since is not None and self.leaving is None and now - self.deaf_since > DEAF_S:
            return "has hung up without ending"
        if self.lost and self.lost == self.id and self.board.started():
            if self.forgotten:
                return "runs jobs for a broker that does not know it any more: it was emptied, or has lost its data"
            return "has lost its lease while it was running jobs"
        return None

    def cut_off_s(self, now: float) -> float | None:
        """For how long nobody could renew its lease, if so long that what it runs must be ended; None: it need not.

        If it runs nothing, it may stay: it begins nothing more before the lease is renewed, and what it has finished
        can still be settled if nobody was quicker.
        """
        silent_s = now - max(self.renewed_at, min(self.beat.renewed_at, self.heard_at))
        if silent_s < self._options.lease_s * 2 / 3:
            return None
        # What runs apart, in processes of its own, is not on the board.
        return silent_s if self.beat.running or self.board.started() else None

    def is_losing_claims(self, now: float) -> bool:
        """Whether it keeps its claims itself, and has not for so long that it will not be in time.

        Not if that is only seen now: both may have been held up together, and the child makes up for it in a moment.
        """
        lease_s = self._options.lease_s
        if not self.keeps or now - self.renewed_at < lease_s * 7 / 12:
            self._unkept_since = None
            return False
        if self._unkept_since is None:
            self._unkept_since = now
        return now - self._unkept_since >= lease_s / 12

    def is_hung(self, now: float) -> bool:
        """Whether nothing has been heard of it for as long as that: its interpreter is held, or it gets no time."""
        return now - self.heard_at > min(MUTE_S, self._options.lease_s / 3)

    def is_silent(self, now: float) -> bool:
        """Whether it is not able to say anything, or to hear."""
        return self.stopped or (bool(self.ids) and self.leaving is None and now - self.heard_at > MUTE_S)

    def is_overdue(self, now: float) -> bool:
        """Whether it has said goodbye long ago: something that its jobs have left behind keeps it from ending."""
        return self.leaving is not None and now - self.heard_at > LINGERS_S

    def renewable(self, now: float) -> bool:
        """Whether it is time to renew its lease, and right to."""
        if not self.ids or self.leaving or self.given_up:
            return False
        # So often that a third of the lease is left for a stop, whenever it comes, before two thirds have gone by.
        return now - self.renewed_at >= self._options.lease_s / 6 and self.trouble(now) is None

    def replacement_reason(self, now: float) -> str | None:
        """Why another should take its place; None: it need not."""
        jobs = self.beat.processed + self.beat.failed
        if jobs >= self._max_jobs:
            return f"has run {jobs} jobs"
        if now - self.started_at >= self._max_age_s:
            return f"is {now - self.started_at:.0f} s old"
        return self._grown(now) if self._options.max_memory else None

    def _grown(self, now: float) -> str | None:
        used = resident_bytes(self.pid)
        self._first_used = self._first_used or used
        hopeless = self._first_used >= self._max_memory  # another would be as large
        if used < self._max_memory or (hopeless and now - self.started_at < HOPELESS_S):
            return None
        return f"has grown to {used / 1_048_576:.0f} MiB"

    def runs_to_blame(self) -> list[StartedRun]:
        """What counts a death now that it has ended."""
        if self.leaving is not None:
            return self.leaving.blamed
        if self.blameless:
            return []
        return self.board.started()

    # -- telling ---------------------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still is there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def retire(self) -> None:
        """Have it take no more jobs, finish what it runs, however long that takes, and end."""
        self.retiring = True
        self._send(RETIRE)

    def give_up(self) -> None:
        """Have it leave what it runs, settle what has ended, and end at once; it has been told to stop before."""
        self._send(GIVE_UP)

    def _send(self, letter: bytes) -> None:
        with suppress(OSError):
            self._socket.send(letter)

    def close(self) -> None:
        """Let go of what was shared with it."""
        self._socket.close()
        os.close(self._lifeline)
        self.board.close()
