"""`Supervisor`: starts worker processes, watches them, replaces them and ends them.

It starts a new child when a child has ended. It renews the children's leases, so that a busy interpreter does not
lose its lease. It ends a child that is stopped, hangs or is cut off from the broker, before another worker may take
the child's jobs. It never runs a job, and no job can harm it.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...clock import Clock, SystemClock
from ...config import WorkerOptions
from ...errors import BrokerAwayError, BrokerRefusedError
from ...jobs.settlement import how_it_ended
from ...logs import EventLog
from ...telemetry import ProcessEnded, ProcessGivenUp, ProcessReplaced, ProcessStarted
from ..observe.counters import CounterTotal
from ..outage import MissingQueues, Outage
from ..process.child import Child
from ..process.tree import kill_group, kill_marked, kill_tree
from ..queues import queues_served
from ..shutdown import LAST_TURN_S, SAY_S, check_until_empty
from ..signals import handle_signals, restore_signals, show_stacks
from .leases import ChildLeases

if TYPE_CHECKING:
    from ...app import Laneway

#: Seconds before another child is started, after the first, second, … child that ended without a known reason.
BACKOFF_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
#: The longest such pause if the reason is known. Jobs were running in the child, and each counts a death, so it cannot
#: go on for ever; or the supervisor has ended the child; or the child has said that it ends.
BACKOFF_KNOWN_S = 0.5
#: A child that has served for this many seconds was healthy. When it ends, the count of crashes starts again.
WELL_S = 5.0
#: Seconds between two looks at the children if nothing happens; and if one of them is stopped.
LOOK_S, LOOK_CLOSELY_S = 0.5, 0.05
#: After a gap of this many seconds between two looks the supervisor was stopped itself, and cannot tell which children
#: were silent.
GAP_S = 3.0
#: A child that has not joined after this many seconds is reported.
SLOW_START_S = 60.0


class ProcessSlot:
    """A place for one process of the supervisor: the child in it, or when to start one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        #: When to start a child, on the monotonic clock; None: do not start one.
        self.start_at: float | None = 0.0
        self.crashes = 0

    def back_off(self) -> float:
        """Count one more crash or failed start. Returns the seconds to wait before the next start."""
        self.crashes += 1
        return BACKOFF_S[min(self.crashes, len(BACKOFF_S)) - 1] * (0.75 + random.random() / 2)


class Supervisor:
    """Runs `options.processes` children, each by the same `command`, until told to stop."""

    def __init__(
        self, app: Laneway, options: WorkerOptions, command: Sequence[str], *, clock: Clock | None = None
    ) -> None:
        self.app = app
        self.options = options
        self._command = command
        self._clock = clock or SystemClock()
        self._places = [ProcessSlot(number) for number in range(1, options.processes + 1)]
        #: All children that have not ended, including those that are being replaced.
        self._children: list[Child] = []
        check_until_empty(app.broker, options)
        self._queues = queues_served(app, options)
        self._outage = Outage(app.telemetry, refusals=max(1, len(self._queues)))
        self._missing = MissingQueues(app.telemetry)
        self._renewals = ChildLeases(app, self._clock, options.lease_s, self._outage, lambda: tuple(self._children))
        self._log = EventLog(app, verbose=options.verbose, slow_s=options.slow_s)
        batches = [task.options.batch_size for queue in app.queues() if (task := app.registry.collector_of(queue))]
        self._largest_batch = max(batches, default=1)
        self._looked_at = self._clock.monotonic()
        #: The counters of all children; None if no metrics are served.
        self.total: CounterTotal | None = None
        self._served = False
        self._stop_asked = False
        self._give_up_asked = False
        self._interrupts = 0
        #: When children that still run are ended; None until the supervisor stops.
        self._deadline: float | None = None
        self._hurried = False
        self._say_at = 0.0
        self._code = 0

    # -- running ---------------------------------------------------------------------------------------

    def run(self, signals: Sequence[int] = ()) -> int:
        """Run until told to stop. Returns 0 if all children finished or gave back their jobs, and another code if not.

        `signals` came before it could handle them.
        """
        before = handle_signals(self._signalled, self._show_stacks)
        for number in signals:
            self._signalled(number)
        waking, self._woken = socket.socketpair()
        for end in (waking, self._woken):
            end.setblocking(False)
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to end a wait
        old_fd = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        self._log.start()
        self._renewals.start()
        try:
            while self.look():
                self._wait()
            if not self._renewals.stop(LAST_TURN_S):
                self._code = self._code or 1  # other workers take over the claims when the lease has ended
        finally:
            for child in self._children:  # an error of the supervisor must not leave children running
                kill_tree(child.pid)
            signal.set_wakeup_fd(old_fd)
            restore_signals(before)
            waking.close()
            self._woken.close()
            self._log.stop()
        return self._code

    def look(self) -> bool:
        """Process everything that has happened since the last look. False: all children have ended for good."""
        now = self._clock.monotonic()
        for child in self._children:
            self._listen(child)
        if now - self._looked_at > GAP_S:
            for child in self._children:
                child.heard_at = now
        self._looked_at = now
        self._served = self._served or any(child.ids for child in self._children)
        self._reap(now)
        self._judge(now)
        self._replace(now)
        if self._stop_asked:
            self._stop(now)
        else:
            self._fill(now)
        return bool(self._children) or any(place.start_at is not None for place in self._places)

    def _listen(self, child: Child) -> None:
        child.listen()
        name, beat = f"process {child.pid}", child.beat
        if beat.away:
            self._outage.away(name, BrokerRefusedError(beat.away) if beat.refused else BrokerAwayError(beat.away))
        elif self._outage.waits(name):
            self._outage.back(name)
        if beat.missing or self._missing.errors:
            self._missing.missed_by(name, beat.missing)
        if self.total is not None and child.beat.tally is not None:
            self.total.update(child.pid, child.beat.tally)

    def _wait(self) -> None:
        """Wait until a child sends a message or ends, a signal comes, or it is time for the next look."""
        closely = any(child.stopped or child.lost for child in self._children) or self._deadline is not None
        starts = [place.start_at for place in self._places if place.start_at is not None]
        timeout_s = LOOK_CLOSELY_S if closely else min(LOOK_S, self.options.lease_s / 12)
        if starts:
            timeout_s = max(0.0, min(timeout_s, min(starts) - self._clock.monotonic()))
        poll = select.poll()
        for fd in [self._woken.fileno(), *(child.fileno() for child in self._children if child.listens)]:
            poll.register(fd, select.POLLIN)
        poll.poll(timeout_s * 1000)
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    # -- children --------------------------------------------------------------------------------------

    def _fill(self, now: float) -> None:
        for place in self._places:
            if place.child is None and place.start_at is not None and now >= place.start_at:
                self._start(place)

    def _start(self, place: ProcessSlot) -> bool:
        """Start a child. False: no process can be started now; it is tried again later."""
        try:
            keeps = self.app.broker.capabilities.holders_keep
            child = Child(self._command, self.options, place.number, self._largest_batch, self._clock, keeps=keeps)
        except OSError as error:  # no more processes, memory or descriptors
            delay_s = place.back_off()
            place.start_at = self._clock.monotonic() + delay_s
            self.app.logger.error("a process cannot be started (%s); again in %.1f s", error, delay_s)
            return False
        place.start_at, place.child = None, child
        self._children.append(child)
        self.app.telemetry.emit(ProcessStarted(place.number, child.pid))
        return True

    def _reap(self, now: float) -> None:
        """Reap children that have ended, and note which were stopped or continued.

        In a container it also reaps processes of which it becomes the parent.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if not pid:
                return
            child = next((each for each in self._children if each.pid == pid), None)
            if child is not None and (code := child.note(status)) is not None:
                self._ended(child, code, now)

    def _ended(self, child: Child, code: int, now: float) -> None:
        """Clean up after a child that is gone: end all processes that it started, then give back its claims."""
        self._listen(child)
        if self.total is not None:
            self.total.ended(child.pid)
        self._children.remove(child)
        self._outage.forget(f"process {child.pid}")
        self._missing.forget(f"process {child.pid}")
        if child.leaving is None or code != 0:  # its runs, or processes that they started, may be left
            kill_group(child.pid)
            kill_marked(child.mark)
        blamed = child.runs_to_blame()
        self._renewals.give_back(child.ids, blamed, held=child.leaving is None or not child.leaving.finished)
        place = self._places[child.number - 1]
        if child.lingered and child.leaving is not None:
            code = 0 if child.leaving.finished else 1  # a leftover of a job kept it from exiting with this code
        orderly = child.leaving is not None and not blamed and code == 0
        known = blamed or child.given_up or child.leaving
        again_in_s = self._again_in(place, child, code, now, BACKOFF_KNOWN_S if known else BACKOFF_S[-1])
        ending = "ended" if orderly else how_it_ended(code)
        self.app.telemetry.emit(
            ProcessEnded(child.number, child.pid, ending, orderly or self._stop_asked, len(blamed), again_in_s)
        )
        child.close()

    def _again_in(self, place: ProcessSlot, child: Child, code: int, now: float, most_s: float) -> float | None:
        """Seconds until another child takes its place; None: none does."""
        if self._stop_asked and code != 0 and child.ids:  # a child that has not joined has left nothing behind
            self._code = self._code or 1
        if place.child is not child:  # another child already has its place
            return None
        place.child = None
        finished = child.leaving is not None and code == 0
        if self._stop_asked or (self.options.until_empty and finished):
            return None
        refused = self.options.until_empty and child.leaving is not None and code == 2
        if refused or (code >= 0 and not self._served):
            # It may not look whether its queues are empty; or it could not start, and no other child has. Another
            # child would fail again. It has said why.
            self._code = code if code in (1, 2) else 1
            self._stop_asked = True
            return None
        if finished:
            delay_s = 0.0
        else:
            if child.ids and now - child.started_at >= WELL_S:
                place.crashes = 0
            delay_s = min(place.back_off(), most_s)
        place.start_at = now + delay_s
        return delay_s

    def _judge(self, now: float) -> None:
        """End children that must not go on, before other workers may take their jobs."""
        for child in self._children:
            if not child.ids and not child.slow_to_start and now - child.started_at > SLOW_START_S:
                child.slow_to_start = True
                self.app.logger.warning(
                    "process %d (pid %d) has been starting for %.0f s; USR2 shows what it does",
                    child.number,
                    child.pid,
                    SLOW_START_S,
                )
            if child.is_overdue(now) and not child.given_up:
                child.lingered = True
                self._end(child, "has finished and does not end")
            if child.given_up or not child.ids:
                continue
            why = child.trouble(now)
            if why is None:
                self._judge_cut_off(child, now)
                continue
            lost = child.lost == child.id
            if not lost and child.deaf_since is None and now < child.renewed_at + self.options.lease_s * 2 / 3:
                continue
            self._end(child, why)
            child.blameless = lost

    def _judge_cut_off(self, child: Child, now: float) -> None:
        """End a child whose lease cannot be renewed, if other workers may still reach the broker and take its jobs."""
        in_vain = self.app.broker.capabilities.remote and self._renewals.in_vain(now)
        if not (child.is_losing_claims(now) if child.keeps else in_vain):
            return
        silent_s = child.cut_off_s(now)
        if silent_s is None:
            return
        if child.keeps and child.is_hung(now):
            # Its runs may be the reason, so each counts a death. In the end such a job runs alone and harms no other.
            self._end(child, f"has been silent for {now - child.heard_at:.1f} s, and others may take its jobs")
            return
        self._end(child, f"has been cut off from the broker for {silent_s:.1f} s, and others may take its jobs")
        child.blameless = True

    def _end(self, child: Child, why: str) -> None:
        child.given_up = True
        self.app.telemetry.emit(ProcessGivenUp(child.number, child.pid, why))
        kill_tree(child.pid)

    def _replace(self, now: float) -> None:
        """Retire children that are due for replacement, and start new children in their place."""
        if self._stop_asked:
            return
        for place in self._places:
            child = place.child
            if (
                child is None
                or not child.ids
                or child.leaving
                or child.given_up
                or not (why := child.replacement_reason(now))
            ):
                continue
            if any(each.retiring and each.number == place.number for each in self._children):
                continue  # its predecessor still runs jobs: children must not pile up
            if self._start(place):
                self.app.telemetry.emit(ProcessReplaced(child.number, child.pid, why))
                child.retire()

    # -- stopping --------------------------------------------------------------------------------------

    def _stop(self, now: float) -> None:
        """Tell all children to stop, once. If asked to, tell them to give up. End those that do not stop in time."""
        for place in self._places:
            place.start_at = None
        if self._deadline is None:
            self._deadline = now + self.options.shutdown_timeout_s
            self._say_at = now + SAY_S
            for child in self._children:
                child.signal(signal.SIGTERM)
        if self._give_up_asked and not self._hurried:
            self._hurried = True
            self._deadline = now
            for child in self._children:
                child.give_up()
        for child in self._children:
            # A child that answers gets time to settle its finished runs. A silent child will not settle any.
            patience_s = 0.0 if child.is_silent(now) else 2 * LAST_TURN_S
            if now >= self._deadline + patience_s and not child.given_up:
                self._end(child, f"did not stop in time{_running(child)}")
                child.blameless = True
        if now >= self._say_at:
            self._say_at = now + SAY_S
            self._report_silent_children(now)

    def _report_silent_children(self, now: float) -> None:
        """Report the running jobs of children that cannot report them themselves."""
        for child in self._children:
            if child.is_silent(now) and (runs := _running(child)):
                self.app.logger.info("process %d (pid %d) does not answer%s", child.number, child.pid, runs)

    def _signalled(self, number: int) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._give_up_asked = True
        self._stop_asked = True

    def _show_stacks(self) -> None:
        for child in self._children:
            child.signal(signal.SIGUSR2)
        show_stacks(self.app.logger, "stacks of all threads of the supervisor:")

    # -- health checks ---------------------------------------------------------------------------------

    def not_ready(self) -> str | None:
        """Why no jobs are being run now; None: they are."""
        if self._stop_asked:
            return "it is stopping"
        serving = [child for child in self._children if child.ids and not child.retiring and not child.stopped]
        if not serving:
            return "no process is serving"
        if self._outage.waits("lease") or all(child.beat.away for child in serving):
            return "the broker is away"
        if all(all(queue in child.beat.missing for queue in self._queues) for child in serving):
            return "its queues are missing in the broker"
        return None

    def not_live(self) -> str | None:
        """Why the supervisor has failed; None: it has not."""
        silent_s = self._clock.monotonic() - self._looked_at
        return f"it has not looked at its processes for {silent_s:.0f} s" if silent_s > 10 * LOOK_S else None


def _running(child: Child) -> str:
    """The jobs that a child runs, as the end of a sentence; empty if it runs none."""
    runs = child.board.started()
    names = ", ".join(f"{run.queue} {run.key}" for run in runs[:5])
    more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
    return f"; it runs {names}{more}" if runs else ""
