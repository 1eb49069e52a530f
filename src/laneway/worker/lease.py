"""The lease: what tells a living worker from a dead one, and what becomes of the claims of the dead.

A lease is a counter that its worker counts up. It has ended when an observer has seen it unchanged for its length
on the observer's own monotonic clock; a step of anybody's wall clock neither ends nor prolongs it. Declaring a
worker dead comes first and is final; giving back its claims comes after, and every sweep repeats it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..clock import Clock
from ..errors import LeaseLost
from ..telemetry import Reclaimed

if TYPE_CHECKING:
    from ..app import Laneway
    from .fetcher import Fetcher


class Observer:
    """Remembers when each lease was last seen to move."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}

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


class Keeper:
    """A thread that renews this worker's lease and sweeps up after the others."""

    def __init__(
        self,
        app: Laneway,
        clock: Clock,
        fetchers: Sequence[Fetcher],
        *,
        lease_s: float,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
    ) -> None:
        self._app = app
        self._clock = clock
        self._fetchers = fetchers
        self._lease_s = lease_s
        self._worker_id = worker_id
        self._lost = lost
        self._observer = Observer(clock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="laneway-lease", daemon=True)

    def start(self) -> None:
        """Begin to renew and to sweep."""
        self._thread.start()

    def stop(self) -> None:
        """End; the lease is left to `broker.leave` or to run out."""
        self._stop.set()
        self._thread.join(5.0)

    def _main(self) -> None:
        renewed = self._clock.monotonic()
        self._try(self.sweep)
        while not self._stop.wait(min(1.0, self._lease_s / 6)):
            now = self._clock.monotonic()
            if now - renewed >= self._lease_s / 3 and self._try(self.renew):
                renewed = now
            self._try(self.sweep)

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except LeaseLost:
            self._lost(self._worker_id())
        except Exception:
            # The fetchers say that the broker is away; here it is tried again at the next beat.
            self._app.logger.debug("the lease could not be kept", exc_info=True)
            return False
        return True

    def renew(self) -> None:
        """Count up the lease, and have the broker give back claims whose answer never arrived."""
        held: set[int] = set()
        limits: list[int] = []
        latest = 0
        for fetcher in self._fetchers:
            tokens, in_flight_after, answered = fetcher.holdings()
            held |= tokens
            latest = max(latest, answered)
            if in_flight_after is not None:
                # The turn under way has a later token than this: its claims are not judged yet.
                limits.append(in_flight_after)
        self._app.broker.renew(self._worker_id(), held, min([*limits, latest]))

    def sweep(self) -> None:
        """Declare dead whoever is, and give back what the dead hold."""
        broker = self._app.broker
        mine = self._worker_id()
        others = {worker: lease for worker, lease in broker.leases().items() if worker != mine}
        dead = [worker for worker, counter in self._observer.expired(others) if broker.declare_dead(worker, counter)]
        count = broker.reclaim()
        if dead or count:
            self._app.telemetry.emit(Reclaimed(count, dead))
