"""`ChildLeases`: renews the children's leases and gives back the claims of children that have ended.

It runs in a thread of its own: the broker may be slow, and ending a child must not wait for the broker. It also
sweeps: it declares other workers dead and gives back their claims. On a broker where only the holder can keep a claim
(`holders_keep`), it renews nothing for a child.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...clock import Clock
from ...errors import LeaseLost
from ...jobs.data import StartedRun
from ..deadline import SAY_S
from ..lease.lease import LeaseObserver, sweep
from ..member import is_forgotten

if TYPE_CHECKING:
    from ...app import Laneway
    from ..outage import Outage
    from ..process.child import Child


class ChildLeases:
    """Renews leases, gives back the claims of ended children, and sweeps up after other workers."""

    def __init__(
        self, app: Laneway, clock: Clock, lease_s: float, outage: Outage, children: Callable[[], Sequence[Child]]
    ) -> None:
        self._app = app
        self._clock = clock
        self._lease_s = lease_s
        self._outage = outage
        self._children = children
        self._observer = LeaseObserver(clock)
        #: When the broker last carried out all requests of a round.
        self._answered_at = clock.monotonic()
        #: When the current round began, or the first of the failed rounds before it; None: the last round succeeded.
        self._asking_since: float | None = None
        self._ended: list[tuple[str, list[StartedRun], bool]] = []
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="laneway-leases", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Give back the claims of ended children, and end. False: the broker did not take them in time.

        For children that held nothing it only leaves the broker, and does not wait long for that.
        """
        self._stopping = True
        self._wake.set()
        owed, away = self._owed(), self._outage.waits("lease")
        self._thread.join(SAY_S if owed or not away else 0.0)
        if owed and not away and self._thread.is_alive():
            left_s = timeout_s - SAY_S
            self._app.logger.info("still waiting for the broker to take back jobs; giving up in %.1f s", left_s)
            self._thread.join(left_s)
        if self._ended:
            self._app.logger.warning("could not say goodbye to the broker; the leases will run out")
        return not self._owed()

    def _owed(self) -> bool:
        """Whether a worker in the list of ended ones held claims."""
        return any(held for _, _, held in self._ended)

    def in_vain(self, now: float) -> bool:
        """Whether its calls to the broker have had no answer, or an error, for a while.

        If not, the whole supervisor may only have been held up, and the leases are renewed in a moment.
        """
        since = self._asking_since
        return since is not None and now - since >= self._lease_s / 12

    def give_back(self, ids: Sequence[str], died: list[StartedRun], held: bool) -> None:
        """Note that the process of these workers is gone. The next round gives back their claims.

        The runs in `died` count a death. `held` says whether the workers may have held claims.
        """
        self._ended += [(worker, died, held) for worker in ids]
        self._wake.set()

    def _main(self) -> None:
        while not self._stopping:
            self.round()
            self._wake.wait(min(1.0, self._lease_s / 6))
            self._wake.clear()
        self.round()

    def round(self) -> None:
        """Renew, give back and sweep. A step that fails is repeated in the next round."""
        if self._asking_since is None:
            self._asking_since = self._clock.monotonic()
        try:
            renewed, left = self._renew(), self._leave()
            if not self._stopping:
                self._forget_if_cut_off()
                sweep(self._app, self._observer, [name for child in self._children() for name in child.ids])
        except Exception as error:
            self._outage.away("lease", error)
        else:
            self._asking_since = None
            if renewed or left or not self._stopping:  # else the broker was not called, so it did not answer
                self._outage.back("lease")
                self._answered_at = self._clock.monotonic()

    def _forget_if_cut_off(self) -> None:
        """Reset the observer if the broker was away or this process was stopped: what it saw before proves nothing."""
        if self._clock.monotonic() - self._answered_at > self._lease_s * 2 / 3:
            self._observer.reset()

    def _leave(self) -> bool:
        """Leave the broker for each ended worker, which gives back its claims. Returns whether there was one."""
        left = bool(self._ended)
        while self._ended:
            worker, died, _ = self._ended[0]
            self._app.broker.leave(worker, died)
            del self._ended[0]  # not before: if we are killed here, the lease runs out
        return left

    def _renew(self) -> bool:
        """Renew the leases that are due. Returns whether there was one."""
        asked = False
        if self._app.broker.capabilities.holders_keep:
            return asked
        for child in self._children():
            if not child.renewable(began := self._clock.monotonic()):
                continue
            name, asked = child.id, True
            try:
                self._app.broker.renew(name, (), 0)
            except LeaseLost:
                child.forgotten = is_forgotten(self._app.broker, name)
                child.lost = name
            else:
                child.renewed_at = began
        return asked
