"""Taking turns with the broker: one at a time, each until it is answered, however long the broker is away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...broker import Answer, Turn
from ...errors import BrokerError, EnqueueError, LeaseLost, NoQueueError
from ...failpoints import armed, reach
from ...jobs.settlement import Settlement

if TYPE_CHECKING:
    from ...app import Laneway
    from ..missing import MissingQueues
    from ..outage import Outage
    from ..run.refusals import Refusals
    from .shards import Share

#: The first pause before a call is repeated, and the longest.
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 2.0


class Turns:
    """The turns of one worker on one queue, in order."""

    def __init__(
        self,
        app: Laneway,
        queue: str,
        outage: Outage,
        missing: MissingQueues,
        share: Share,
        refusals: Refusals,
        *,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
        given_up: Callable[[], bool],
        pause: Callable[[float], object],
        summon: Callable[[], None],
    ) -> None:
        self._app = app
        self._queue = queue
        self._outage = outage
        self._missing = missing
        self._share = share
        self._refusals = refusals
        self._worker_id = worker_id
        self._lost = lost
        #: Whether it does not wait for a broker that is away.
        self._given_up = given_up
        self._pause = pause
        #: Has the runners take what waits.
        self._summon = summon
        self._seq = 0
        #: Since when it waits for the broker.
        self.asked_at: float | None = None

    def take(self, settlements: list[Settlement], wanted: int) -> tuple[Turn, Answer] | None:
        """Take one turn; the repeat of a lost one gets the same answer. None: it was given up, and nothing is lost,
        because the claims are taken back when the lease has ended."""
        turn = self._next(settlements, wanted)
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                answer = self._ask(turn)
                break
            except LeaseLost:
                self._lost(turn.worker)
                if self._worker_id() == turn.worker:  # no new id to be had yet
                    backoff_s = self._back_off(backoff_s)
                # Under the new id these settlements are refused: the claims went with the old one.
                turn = self._next(settlements, wanted)
            except EnqueueError as error:
                settlements = self._refusals.fail(settlements, error)
                turn = self._next(settlements, wanted)
            except NoQueueError as error:
                self._outage.back(self._queue)  # it answers
                self._missing.miss(self._queue, str(error))
                if self._given_up():
                    return None
                backoff_s = self._back_off(backoff_s)
            except Exception as error:
                if not isinstance(error, BrokerError):
                    self._app.logger.exception("a turn on the queue %s failed", self._queue)
                self._outage.away(self._queue, error)
                if self._given_up():
                    return None
                backoff_s = self._back_off(backoff_s)
        self._outage.back(self._queue)
        self._missing.found(self._queue)
        return turn, answer

    def _next(self, settlements: list[Settlement], wanted: int) -> Turn:
        self._seq += 1
        turn = Turn(self._worker_id(), self._queue, self._seq, settlements)
        self._share.ask(turn, wanted)
        turn.on_sent = self._summon
        return turn

    def _ask(self, turn: Turn) -> Answer:
        if armed and turn.settlements:
            reach("before settle")
        self.asked_at = time.monotonic()
        try:
            answer = self._app.broker.turn(turn)
        finally:
            self.asked_at = None
            self._summon()  # unless the broker has had it done, and whatever became of the turn
        if armed and turn.settlements:
            reach("after settle")
        if armed and answer.claims:
            reach("after claim")
        return answer

    def _back_off(self, pause_s: float) -> float:
        """Wait a while, spread by chance; returns how long to wait the next time."""
        self._pause(pause_s * (0.5 + random.random()))
        return min(pause_s * 2, LONGEST_BACKOFF_S)
