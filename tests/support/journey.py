"""Follows one job through Laneway, from the call that enqueues it until its settlement is recorded, and collects the
functions of the package that carry it.

What counts: a job passes from thread to thread, and a thread works in stretches. A stretch lasts from one wait of the
thread to its next one (`threading.Condition.wait`, which `Event.wait` and `Queue.get` use as well). It counts if the
thread has the job in hand during it: the thread enqueues the job, moves it, claims it, runs it or settles it. Then all
functions count that the thread calls in this stretch, and those that are on its stack when it has the job. The last
stretch ends when the broker has recorded the settlement.

What does not count: threads that never have the job in hand (the lease, the log, the watch for outages), rounds that
find nothing, and the start and the end of the worker. Lambdas and comprehensions do not count either, because it
depends on the version of Python whether they are functions.

The count must not depend on how fast each thread is. So a new thread begins only when no other thread has the job in
hand. The worker has one runner, which it starts when it has claimed the job.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import laneway
from laneway import Laneway, Worker, WorkerOptions

#: How long a job may take on a machine that is busy with something else.
PATIENCE_S = 60.0

#: A function: its file, as a path inside the package, and its name with that of its class.
Function = tuple[str, str]

_PACKAGE = f"{Path(laneway.__file__).parent}{os.sep}"
_WAIT, _START = threading.Condition.wait.__code__, threading.Thread.start.__code__
_RUN = threading.Thread.run.__code__


class Stretch:
    """What one thread calls between two waits."""

    def __init__(self) -> None:
        self.functions: set[Function] = set()
        self.has_job = False

    def add(self, code: CodeType) -> None:
        """Add a function, if this is one of Laneway's."""
        # The code of a module or a class is not optimized.
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if is_function and code.co_filename.startswith(_PACKAGE):
            path = code.co_filename.removeprefix(_PACKAGE).replace(os.sep, "/")
            self.functions.add((path, code.co_qualname))


class Journey:
    """The journey of an app's only job, which may be made several times.

    The task calls `has_job`, and so does whatever else sees that a thread has the job in hand. Enqueueing, claims and
    settlements are seen here.
    """

    def __init__(self, app: Laneway) -> None:
        self._app = app
        self._functions: set[Function] = set()
        self._thread = threading.local()
        self._changed = threading.Condition()
        #: How many journeys were begun.
        self._number = 0
        self._is_followed = self._is_settled = False
        #: The stretches under way in which a thread has the job.
        self._carrying: list[Stretch] = []
        self._turn = app.broker.turn
        app.broker.turn = self._watched_turn  # type: ignore[method-assign]

    def make(self, enqueue: Callable[[], object], become_due: Callable[[], None] = lambda: None) -> set[Function]:
        """Enqueue the job, have it become due, and run a worker until the job is settled. Returns what carried it."""
        worker = Worker(self._app, WorkerOptions(concurrency=1))
        with self._followed():
            try:
                with self._enqueueing():
                    enqueue()
                become_due()
                worker.start()
                self._wait()
            finally:
                worker.stop(PATIENCE_S)
        return self._functions

    # -- where the job is ------------------------------------------------------------------------------

    def has_job(self) -> None:
        """The calling thread has the job in hand."""
        if not self._is_followed:
            return
        stretch = self._stretch()
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            stretch.add(frame.f_code)
            frame = frame.f_back
        with self._changed:
            if not stretch.has_job:
                stretch.has_job = True
                self._carrying.append(stretch)

    @contextmanager
    def _enqueueing(self) -> Iterator[None]:
        """The caller has the job in hand. This is one stretch, even if the caller waits."""
        before = sys.getprofile()
        self._thread.is_caller = True
        self.has_job()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._thread.is_caller = False
            self._end_stretch()

    def _watched_turn(self, turn: Any) -> Any:
        answer = self._turn(turn)
        if answer.claims or turn.settlements:
            self.has_job()
        # A worker may also give a job back that it could not begin, and claim it again.
        if self._is_followed and any(settlement.verdict == "done" for settlement in turn.settlements):
            self._end_stretch()
            with self._changed:
                self._is_settled = True
                self._changed.notify_all()
        return answer

    def _wait(self) -> None:
        """Wait until the job is settled, and until each thread that had the job in hand waits again."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._is_settled and not self._carrying, PATIENCE_S)
            self._is_followed = False
        assert ended, f"the job was not settled within {PATIENCE_S:.0f} s"

    # -- tracing ---------------------------------------------------------------------------------------

    @contextmanager
    def _followed(self) -> Iterator[None]:
        """Begin a journey, and trace the threads that are started from now on."""
        self._number += 1
        self._functions, self._carrying = set(), []
        self._is_followed, self._is_settled = True, False
        before = threading.getprofile()
        gc.disable()  # it would call finalizers in any thread, at any time
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            self._is_followed = False
            threading.setprofile(before)
            gc.enable()

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not self._is_followed:
            return
        code = frame.f_code
        if code is _WAIT:
            if not getattr(self._thread, "is_caller", False) and not _is_for_start(frame):
                self._end_stretch()
        elif code is _RUN:  # a new thread, which holds no lock yet
            with self._changed:
                self._changed.wait_for(lambda: not self._carrying, PATIENCE_S)
        else:
            self._stretch().add(code)

    def _stretch(self) -> Stretch:
        """The stretch of the calling thread."""
        thread = self._thread
        if getattr(thread, "number", 0) != self._number:
            thread.number, thread.stretch = self._number, Stretch()
        stretch: Stretch = thread.stretch
        return stretch

    def _end_stretch(self) -> None:
        stretch, self._thread.stretch = self._stretch(), Stretch()
        if stretch.has_job:
            with self._changed:
                self._functions |= stretch.functions
                self._carrying.remove(stretch)
                self._changed.notify_all()


def _is_for_start(wait: FrameType) -> bool:
    """Whether a thread waits only until the one that it starts exists: `Thread.start`, `Event.wait`, and this."""
    caller = wait.f_back.f_back if wait.f_back is not None else None
    return caller is not None and caller.f_code is _START
