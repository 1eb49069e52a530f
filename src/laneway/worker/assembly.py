"""`Assembly`: builds the parts of a worker and connects them.

waker ─► fetchers (one per queue) ─► bus ─► runner threads, event loop
            ▲                                      │
            └───────────── settlements ◄───────────┘        LeaseKeeper: lease · Duties: the broker's periodic work

Every start of the worker builds a new `Assembly`. `shutdown.end` stops the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import WorkerOptions
from ..jobs.data import StartedRun
from ..logs import EventLog
from ..telemetry import BrokerAway, BrokerBack, QueueFound, QueueMissing
from .duties import Duties
from .fetch import shards
from .fetch.bus import Bus
from .fetch.fetcher import Fetcher
from .fetch.prefetch import Lane
from .fetch.shards import ShardAssignment
from .fetch.waker import Waker
from .isolation.execute import IsolatedExecutor
from .isolation.pool import ProcessPool
from .lease.lease import LeaseKeeper
from .member import Member
from .outage import MissingQueues, Outage, SilenceWatch
from .process.channel import HeartbeatMessage, JoinMessage, SupervisorLink
from .queues import queues_served
from .run.async_loop import AsyncLoop
from .run.decide import OutboxRefusals
from .run.report import Hooks
from .run.run import Run
from .run.runner import Runner
from .run.threads import RunnerThreads
from .subscriptions import SubscriptionDuty

if TYPE_CHECKING:
    from ..app import Laneway


class Assembly:
    """The parts of a worker, from one start to the next stop."""

    def __init__(
        self,
        app: Laneway,
        options: WorkerOptions,
        clock: Clock,
        link: SupervisorLink | None,
        *,
        die: Callable[[BaseException, Run | None], None],
        lease_lost: Callable[[str], None],
    ) -> None:
        self.app = app
        self.link = link
        #: The error that ended the worker, and the runs that caused it.
        self.died: BaseException | None = None
        self.blamed: list[StartedRun] = []
        fatal: Callable[[BaseException], None] = lambda error: die(error, None)  # noqa: E731 - of a part, not of a run
        self.pool = ProcessPool(app, options)
        self.pool.check()
        self.queues = queues_served(app, options)
        splitter = options.splitter or app.splitter or shards.splitter_from_environment() or shards.default_splitter
        scheduler = options.scheduler or app.scheduler or shards.lag
        shares = {name: ShardAssignment(app, name, splitter, scheduler) for name in self.queues}
        can = app.broker.capabilities
        self._lanes = [Lane(name, options.concurrency, can.ahead_s, can.weight) for name in self.queues]
        self.bus = Bus(self._lanes, options.concurrency, clock.monotonic)
        self.bus.on_room = self._wake_fetchers
        self.loop = AsyncLoop(self.bus, fatal)
        self.outage = Outage(app.telemetry, self.send_heartbeat)
        self.missing = MissingQueues(app.telemetry, self.send_heartbeat)
        membership = self.membership = Member(app, options, clock, shares, self.outage)
        worker_id = lambda: membership.id  # noqa: E731 - it changes when a lease is lost
        held_under = lambda: membership.held_under  # noqa: E731 - and so does this
        self.hooks = Hooks(app, clock)
        refusals = OutboxRefusals(app, self.hooks.notify_error)
        keeps = can.holders_keep
        self.fetchers = [
            Fetcher(
                app,
                lane,
                self.bus,
                self.outage,
                self.missing,
                shares[lane.queue],
                refusals,
                worker_id=worker_id,
                held_under=held_under,
                lost=lease_lost,
                told_buried=self.hooks.notify_buried,
                counted=self._counted,
                fatal=fatal,
                moved=membership.report_shards,
                may_begin=(lambda: clock.monotonic() < self.keeper.valid_until) if keeps else None,
            )
            for lane in self._lanes
        ]
        self.waker = Waker(app, self.fetchers, self.outage)
        self.duties = Duties(app, app.broker.health.duties(self.queues) if can.has("health") else (), fatal)
        self.subscribing = SubscriptionDuty(app, self.queues, write=options.subscribe)
        #: Separate from `duties`, because it starts before the other parts.
        self.subscriptions = Duties(app, [self.subscribing] if self.subscribing.is_needed else [], fatal)
        self._lease_s = options.lease_s
        self.keeper = LeaseKeeper(
            app,
            clock,
            self.fetchers,
            self.outage,
            lease_s=options.lease_s,
            worker_id=worker_id,
            lost=lease_lost,
            sweeps=link is None,
            ended_in_time=link is not None and can.remote,
            keeps=keeps,
            renewed=self._renewed if keeps else lambda: None,
        )
        self.pulse = SilenceWatch(
            clock, [*self.fetchers, self.keeper], self.outage, options.lease_s, self.send_heartbeat
        )
        membership.forget = self._forget
        membership.joined = self._joined
        self.runner = Runner(
            app,
            fatal=die,
            wait_for=self.loop.wait_for,
            clock=clock,
            held_under=held_under,
            valid_until=lambda: self.keeper.valid_until,
            board=link.board if link else None,
            pool=self.pool,
        )
        apart = IsolatedExecutor(app, self.runner, self.pool)
        self.bus.grow = RunnerThreads(self.bus, self.runner, self.loop, apart, fatal, options.concurrency).grow
        # A supervisor reports once for all its processes that the broker is away or a queue is missing.
        unsaid = (BrokerAway, BrokerBack, QueueMissing, QueueFound) if link else ()
        self.log = EventLog(app, verbose=options.verbose, slow_s=options.slow_s, unsaid=unsaid)

    def subscribe(self, unless: Callable[[], bool]) -> None:
        """Write the subscriptions. The worker has joined and its lease runs, so wait for a third of the lease at most.

        A write that takes longer goes on in the duty's thread.
        """
        if self.subscribing.is_needed:
            self.subscriptions.start()
            self.subscribing.wait(self._lease_s / 3, unless)

    def start(self) -> None:
        """Start fetching and running jobs. The worker has joined."""
        self.hooks.start()
        for fetcher in self.fetchers:
            fetcher.start()
        self.waker.start()
        self.keeper.start()
        self.duties.start()
        self.pulse.start()

    def stop_fetching(self) -> None:
        """Stop claiming and starting jobs. Claims that have not started are given back."""
        self.runner.stop()
        for fetcher in self.fetchers:
            fetcher.stop()

    # -- status ----------------------------------------------------------------------------------------

    @property
    def processed(self) -> int:
        return sum(fetcher.processed for fetcher in self.fetchers)

    @property
    def failed(self) -> int:
        return sum(fetcher.failed for fetcher in self.fetchers)

    def served(self) -> dict[str, list[int] | None]:
        """The served queues, each with the shards that it may claim from now; None: all of them."""
        return {fetcher.queue: fetcher.served for fetcher in self.fetchers}

    def unfinished(self) -> bool:
        """Whether a claim is still waiting, running or unsettled. If the worker died, only running ones count."""
        if self.died is not None:
            return bool(self.runner.running)
        return bool(self.runner.running) or any(fetcher.holdings for fetcher in self.fetchers)

    # -- messages to the supervisor --------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Tell the supervisor that this process lives, and what it has done."""
        if self.link is not None:
            away = self.outage.error if self.outage else ""
            running, counted, renewed_at = len(self.runner.running), self.link.counted(), self.keeper.renewed_at
            missing = self.missing.errors
            beat = HeartbeatMessage(
                self.processed, self.failed, running, away, self.outage.refused, counted, renewed_at, missing
            )
            self.link.send(beat)

    def _counted(self) -> None:
        """Send a heartbeat at once when this process has run enough jobs to be replaced.

        The next regular heartbeat may be a second away. That is many jobs, if they are small.
        """
        link = self.link
        if link is None or not link.tell_at:
            return
        if self.processed + self.failed >= link.tell_at:
            link.tell_at = 0
            self.send_heartbeat()

    def _joined(self, began: float) -> None:
        self.keeper.joined(began)
        self.subscribing.again()
        if self.link is not None:
            # Sent before any job is claimed: a supervisor that does not know the id could not give its claims back.
            self.link.send(JoinMessage(self.membership.id, began))

    # -- calls between the parts -----------------------------------------------------------------------

    def _renewed(self) -> None:
        """The lease was renewed: tell the supervisor, and wake fetchers that could not claim without it."""
        self.send_heartbeat()
        self._wake_fetchers()

    def _forget(self) -> None:
        for fetcher in self.fetchers:
            fetcher.forget()

    def _wake_fetchers(self) -> None:
        for fetcher in self.fetchers:
            fetcher.wake()
