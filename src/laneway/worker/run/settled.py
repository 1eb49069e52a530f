"""What turns have settled: counted, and told to those who want to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...jobs.settlement import Settlement
from ...telemetry import SettlementRefused

if TYPE_CHECKING:
    from ...app import Laneway


class Settled:
    """What one fetcher has settled."""

    def __init__(
        self, app: Laneway, queue: str, told_buried: Callable[[list[Settlement]], None], counted: Callable[[], None]
    ) -> None:
        self._app = app
        self._queue = queue
        self._told_buried = told_buried
        #: Told when it has counted what a turn has settled.
        self._counted = counted
        self.processed = 0
        self.failed = 0

    def take_in(
        self, settlements: Sequence[Settlement], refused_keys: Sequence[str], stayed: Sequence[str] = ()
    ) -> None:
        """A turn has recorded these, but for those that came too late; those that stayed are not buried."""
        if refused_keys:
            self._app.telemetry.emit(SettlementRefused(self._queue, list(refused_keys)))
        refused = set(refused_keys)
        self._count(settlements, refused, set(stayed))
        if self._app.is_told:
            held = [each for each in settlements if each.outbox and each.claim.key not in refused]
            self._app.tell_enqueued([job for settlement in held for job in settlement.outbox or ()])

    def _count(self, settlements: Sequence[Settlement], refused: set[str], stayed: set[str]) -> None:
        exhausted = []
        for settlement in settlements:
            if settlement.claim.key in refused:
                continue
            if settlement.verdict == "done" or settlement.done:
                self.processed += 1
            if settlement.verdict in ("retry", "bury"):
                self.failed += 1
                if settlement.verdict == "bury" and settlement.claim.key not in stayed:
                    exhausted.append(settlement)
        if exhausted:
            self._told_buried(exhausted)
        if settlements:
            self._counted()
