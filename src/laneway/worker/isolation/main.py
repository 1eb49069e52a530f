"""The isolated process: `python -m laneway.worker.isolation.main FD LIFELINE PARENT`, started only by a worker.

It loads the app and carries out one run after another, with the same `Runner` as the worker. It never claims or
settles: it sends the settlements to the worker, which records them. It ends when the worker asks it to, and at once
when the worker is gone.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ... import logs, sentinel
from ...clock import SystemClock
from ...jobs.data import Claim, Headers
from ...jobs.settlement import DESCRIPTORS_CLOSED
from ...logs import install_last_resort
from ...logs.lines import unformatted
from ...logs.text import traceback_text
from ...telemetry import RunAbandoned, RunEnded, RunEntered, RunLeft, RunStarted
from ..fetch.bus import Bus
from ..fetch.prefetch import Lane
from ..process.channel import (
    EndRequest,
    FromWorker,
    LoadFailure,
    LoadRequest,
    LoadSuccess,
    LogMessage,
    MessageChannel,
    RunBegin,
    RunHeartbeat,
    RunRequest,
    RunResult,
    SettlementData,
    storable,
)
from ..process.tree import group_dies_with
from ..run.async_loop import AsyncLoop
from ..run.decide import describe
from ..run.run import Run
from ..run.runner import Runner
from ..signals import handle_signals, show_stacks

if TYPE_CHECKING:
    from ...app import Laneway

#: While a run is under way it says so often that it lives.
LIVING_S = 1.0


def main(fd: int, lifeline: int, parent: int) -> int:
    """Load the app, say so, and do what the worker says."""
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)  # what a run starts must not keep it open
    sentinel.watch()
    group_dies_with(parent, lifeline)
    # They are for the worker, who decides when a run has to end. Not SIG_IGN: what a run starts would inherit that.
    logger: list[logging.Logger] = []
    handle_signals(lambda number: None, lambda: _show_stacks(logger))
    wire: MessageChannel[FromWorker] = MessageChannel(connection, FromWorker)
    try:
        hello = wire.receive()
        assert isinstance(hello, LoadRequest), "the worker begins with it"
        if hello.others is not None:
            log_format, process = hello.others
            install_last_resort(logs.handler(log_format, process=process))
        try:
            app = _load(hello)
            app.logger = _forwarding(app.logger, wire, hello.log_level)
            logger.append(app.logger)
            if app.on_start is not None:
                app.on_start()
        except (Exception, SystemExit) as error:
            wire.send(LoadFailure(storable(describe(error))))
            return 1
        works: queue.SimpleQueue[RunRequest] = queue.SimpleQueue()
        handler = RunHandler(app, wire)
        threading.Thread(target=handler.serve, args=(works,), name="laneway-run", daemon=True).start()
        wire.send(LoadSuccess())
        # This thread only listens, so that it hears at once when the worker is gone, and can show where others stand.
        while not isinstance(message := wire.receive(LIVING_S if handler.busy else None), EndRequest):
            if isinstance(message, RunRequest):
                handler.busy = True
                works.put(message)
            elif handler.busy:
                wire.send(RunHeartbeat())
    except (EOFError, OSError):
        _check_descriptors()
        os._exit(1)  # the worker is gone: its jobs are being given to others
    app.close()
    return 0


def _load(hello: LoadRequest) -> Laneway:
    from ...cli.target import load

    sys.path[:] = hello.path
    app = load(hello.target).app
    if hello.url is not None:
        app.use(hello.url)
    app.load()
    for module in hello.modules:
        if module not in sys.modules:
            importlib.import_module(module)
    return app


class RunHandler:
    """Carries out what the worker sends, in a thread: where the same code would run if it were not isolated."""

    def __init__(self, app: Laneway, wire: MessageChannel[FromWorker]) -> None:
        self._wire = wire
        #: Whether a run is under way.
        self.busy = False
        self._lane = Lane("", 1)
        self._loop = AsyncLoop(Bus([self._lane], 1), self._end)
        self._worker = ""
        self._runner = Runner(
            app,
            fatal=self._end,
            wait_for=self._loop.wait_for,
            clock=SystemClock(),
            held_under=lambda: self._worker,
            valid_until=lambda: float("inf"),  # the worker sees to it
        )
        # Who listens to runs listens in the worker, where they are told; here, to which run is entered and left.
        for kind in (RunStarted, RunEnded, RunAbandoned):
            app.telemetry.of(kind).clear()
        self._events: list[RunEnded] = []
        app.telemetry.subscribe(RunEnded, self._events.append)
        self._telemetry = app.telemetry
        self._logger = app.logger

    def serve(self, works: queue.SimpleQueue[RunRequest]) -> None:
        """Carry out one run after the other, for as long as the process lives."""
        try:
            while True:
                work = works.get()
                self._wire.send(RunBegin())
                self._carry_out(work)
                _check_descriptors()
                self.busy = False
                self._wire.send(self._ended(work.claims))
        except BaseException as error:
            self._end(error)

    def _carry_out(self, work: RunRequest) -> None:
        self._worker = work.claims[0].worker
        run = self._runner.read(self._lane, work.claims if work.batch else work.claims[0])
        while run is not None:
            if run.call.task.is_async:
                run = self._loop.wait_for(self._execute_async(run, work.headers))
            else:
                with self._inside(run, work.headers):
                    run = self._runner.execute(run)

    async def _execute_async(self, run: Run, headers: Headers) -> Run | None:
        with self._inside(run, headers):  # in the asyncio task that the handler runs in
            return await self._runner.execute_async(run)

    @contextmanager
    def _inside(self, run: Run, headers: Headers) -> Iterator[None]:
        queue, task = run.claim.queue, run.call.task.name
        if self._telemetry.of(RunEntered):
            self._telemetry.emit(RunEntered(queue, task, headers))
        try:
            yield
        finally:
            if self._telemetry.of(RunLeft):
                self._telemetry.emit(RunLeft(queue, task))

    def _ended(self, claims: list[Claim]) -> RunResult:
        numbers = {id(claim): number for number, claim in enumerate(claims)}
        rulings = [SettlementData.of(numbers[id(each.claim)], each) for each, _ in self._lane.finished]
        events = [_fields(event) for event in self._events]
        self._lane.finished.clear()
        self._events.clear()
        return RunResult(rulings, events)

    def _end(self, error: BaseException, run: Run | None = None) -> NoReturn:
        """What is not an Exception ends the process, in the middle of the run."""
        _check_descriptors()
        job = f" in {run.call.task.name} {run.claim.key}" if run else ""
        try:
            self._logger.critical("%s%s ends its isolated process", describe(error), job)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Not by leaving: a thread that something has left behind could keep the process from ending.
            os._exit(_exit_code(error))


def _check_descriptors() -> None:
    """End this process if its run has closed its descriptors: the number of its connection may be another file's."""
    if not sentinel.is_intact():
        os._exit(DESCRIPTORS_CLOSED)


def _fields(event: RunEnded) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "exception"}
    if event.error is not None:
        fields["error"] = storable(event.error)
    return fields


def _exit_code(error: BaseException) -> int:
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


class _LogForwarder(logging.Handler):
    """Sends the lines of the app's log to the worker, whose handlers write them."""

    def __init__(self, wire: MessageChannel[FromWorker]) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except BaseException as error:  # what is shown may be anything, and raise anything
            record = unformatted(record, error)
            text = record.getMessage()
        try:
            raised = record.exc_info[1] if record.exc_info else None
            traceback = record.stack_info if raised is None else traceback_text(raised, whole=True)
            fields = {name: str(getattr(record, name)) for name in ("task", "job") if hasattr(record, name)}
            shown = None if traceback is None else storable(traceback)
            self._wire.send(LogMessage(record.name, record.levelno, storable(text), record.created, shown, fields))
        except OSError:
            pass  # the worker is gone, and so is this process
        except Exception:
            self.handleError(record)


def _forwarding(logger: logging.Logger, wire: MessageChannel[FromWorker], level: int) -> logging.Logger:
    logger.handlers[:] = [_LogForwarder(wire)]
    logger.propagate = False
    logger.setLevel(level)
    return logger


def _show_stacks(logger: list[logging.Logger]) -> None:
    for each in logger:
        show_stacks(each, f"stacks of all threads of the isolated process {os.getpid()}:")


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
