"""`LeaseKeeper`: renews this worker's lease and gives back the claims of dead workers.

A lease is a counter that its worker increments. It has ended when an observer has seen it unchanged for its length,
on the observer's own monotonic clock. So a step of any wall clock neither ends nor prolongs a lease. Declaring a
worker dead comes first and is final. Giving back its claims comes second, and every sweep repeats it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ...clock import Clock
from ...errors import LeaseLost
from ...failpoints import armed, reach
from ...telemetry import Reclaimed

if TYPE_CHECKING:
    from ...app import Laneway
    from ...broker import Broker
    from ..fetch.fetcher import Fetcher
    from ..outage import Outage

#: A worker that there never was: forgetting it writes nothing, but waits for whoever does.
NOBODY = "-"


class LeaseObserver:
    """Remembers when each lease was last seen to move."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

    def reset(self) -> None:
        """Begin anew: for a while nobody could have renewed."""
        self._seen.clear()

    def could_write(self, broker: Broker, lease_s: float) -> bool:
        """Whether the broker takes what is written without delay. If not, nobody could renew, and it begins anew.

        It may be read all the while: a process that does not let go of its interpreter in the middle of a transaction
        keeps SQLite's lock from all others.
        """
        began = self._clock.monotonic()
        broker.leave(NOBODY)
        if self._clock.monotonic() - began < lease_s / 6:
            return True
        self.reset()
        return False

    def expired(self, leases: dict[str, tuple[int, float]]) -> list[tuple[str, int]]:
        """Those of `leases` that have not moved for their length, each with its counter."""
        now = self._clock.monotonic()
        seen = self._seen
        self._seen = {
            worker: seen[worker] if worker in seen and seen[worker][0] == counter else (counter, now)
            for worker, (counter, _) in leases.items()
        }
        return [
            (worker, counter) for worker, (counter, since) in self._seen.items() if now - since >= leases[worker][1]
        ]


class LeaseKeeper:
    """A thread that renews this worker's lease and sweeps up after the others."""

    def __init__(
        self,
        app: Laneway,
        clock: Clock,
        fetchers: Sequence[Fetcher],
        outage: Outage,
        *,
        lease_s: float,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
        sweeps: bool = True,
        ended_in_time: bool = False,
        keeps: bool = False,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._fetchers = fetchers
        self._outage = outage
        self._lease_s = lease_s
        self._worker_id = worker_id
        self._lost = lost
        #: Whether it looks after the leases of others; a child leaves that to its supervisor.
        self._sweeps = sweeps
        #: How long something may still be begun after a renewal. A supervisor ends what runs at two thirds of the lease
        #: if the broker is out of reach: what began later would be seen too late.
        self._begins_s = lease_s * 2 / 3 if ended_in_time or keeps else lease_s
        #: How often it renews: where nobody does it for us (`holders_keep`), as often as a supervisor would.
        self._renews_s = lease_s / 6 if keeps else lease_s / 3
        #: Told of every renewal that has succeeded.
        self._renewed = renewed
        self.name = "lease"
        #: Since when it waits for the broker.
        self.asked_at: float | None = None
        self._observer = LeaseObserver(clock)
        #: When the last renewal that succeeded was begun.
        self.renewed_at = clock.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="laneway-lease", daemon=True)

    @property
    def valid_until(self) -> float:
        """Until then nobody else takes our claims, on the monotonic clock. What is started later may run twice."""
        return self.renewed_at + self._begins_s

    def joined(self, began: float) -> None:
        """The worker has a new lease, asked for at `began`."""
        self.renewed_at = began
        self._observer.reset()

    def start(self) -> None:
        """Begin to renew and to sweep."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End; the lease is left to `broker.leave` or to run out. False: it still waits for the broker."""
        self._stop.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        self.beat()
        while not self._stop.wait(min(1.0, self._renews_s / 2)):
            self.beat()

    def beat(self) -> None:
        """Renew if it is time to, and sweep."""
        worker = self._worker_id()
        self.asked_at = self._clock.monotonic()
        try:
            if self._clock.monotonic() - self.renewed_at >= self._renews_s:
                self.renew(worker)
            if self._sweeps:
                self.sweep(worker)
        except LeaseLost:
            if not self._stop.is_set():  # else the worker has left by now, and must not join again
                self._lost(worker)
        except Exception as error:
            self._outage.away(self.name, error)
        else:
            self._outage.back(self.name)
        finally:
            self.asked_at = None

    def renew(self, worker: str) -> None:
        """Count up the lease, and have the broker give back claims whose answer never arrived."""
        # First how far all have got, then what each holds: a turn answered in between has a later token than this.
        latest = max(fetcher.holdings.answered for fetcher in self._fetchers)
        held: set[int] = set()
        limits = [latest]
        for fetcher in self._fetchers:
            tokens, limit = fetcher.holdings.report()
            held |= tokens
            if limit is not None:
                limits.append(limit)
        before, began = self.renewed_at, self._clock.monotonic()
        if armed:
            reach("during renew")
        self._app.broker.renew(worker, held, min(limits))
        if armed:
            reach("after renew")
        self.renewed_at = began
        self._renewed()
        if self._clock.monotonic() - before > self._lease_s * 2 / 3:
            # The broker was away, or this process was stopped: what was seen before that says nothing of the others.
            self._observer.reset()

    def sweep(self, worker: str) -> None:
        """Declare dead whoever is, and give back what the dead hold."""
        sweep(self._app, self._observer, {worker})


def sweep(app: Laneway, observer: LeaseObserver, own: Collection[str]) -> None:
    """Declare dead whoever is, but for one's own, and give back what the dead hold."""
    broker = app.broker
    others = {other: lease for other, lease in broker.leases().items() if other not in own}
    expired = observer.expired(others)
    if expired and not observer.could_write(broker, min(others[other][1] for other, _ in expired)):
        expired = []
    dead = [other for other, counter in expired if broker.declare_dead(other, counter)]
    count = broker.reclaim()
    if dead or count:
        app.telemetry.emit(Reclaimed(count, dead))
