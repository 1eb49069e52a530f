"""What answers say of a queue's shards: which are ours to serve, and whether their number is being changed.

While it is, nothing is claimed until it is done, and so whoever serves the queue helps. When what is due is none of
ours, looking for work rests for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...broker import Answer, Turn
from ...errors import LanewayError

if TYPE_CHECKING:
    from ...app import Laneway
    from .shards import Share

#: How long it rests when the queue has due jobs and none of them is for this process: at first, and at most.
IN_VAIN_S = (0.005, 0.1)
#: Between two steps of a change of the shard count: while there is something to move, and when what runs must end.
STEP_S = (0.001, 0.02)


class ShardWatch:
    """One fetcher's view of the shards of its queue."""

    def __init__(self, app: Laneway, queue: str, share: Share, moved: Callable[[], None]) -> None:
        self._app = app
        self._queue = queue
        self._share = share
        #: Tells the worker that this process serves other shards now.
        self._moved = moved
        #: Until then, on the monotonic clock, the fetcher does not look for work by itself; 0: it does.
        self.rests_until = 0.0
        self._in_vain_s = 0.0
        #: The shard count that the queue is being changed to; 0 when it is not.
        self.resharding = 0
        self._complained = False

    def rest_s(self) -> float | None:
        """Seconds of rest that are left; None: it does not rest."""
        return max(0.0, self.rests_until - time.monotonic()) if self.rests_until else None

    def is_rested(self) -> bool:
        """Whether a rest is over; then there is none any more."""
        if not self.rests_until or time.monotonic() < self.rests_until:
            return False
        self.rests_until = 0.0
        return True

    def take_in(self, turn: Turn, answer: Answer) -> bool:
        """Take in what an answer says, and rest if none of what is due is ours. True: there is a reason to ask anew."""
        self.resharding = answer.resharding
        self.rests_until = 0.0
        if answer.claims or not turn.limit or not self._share.partial:
            self._in_vain_s = 0.0
        else:
            # Somebody else's jobs may be due, and then waiting for due jobs ends at once, again and again.
            least, most = IN_VAIN_S
            self._in_vain_s = min(max(least, self._in_vain_s * 2), most)
            self._rest(self._in_vain_s)
        before = self._share.epoch
        if self._share.told(answer):
            self._moved()
        if self._share.epoch == before:
            return False
        self.rests_until = 0.0
        return True

    def help(self) -> bool:
        """Take a step of changing the shard count: a turn has just told that it is under way. True: it is done."""
        try:
            step = self._app.broker.reshard(self._queue, self.resharding)
        except Exception as error:
            # The next turn tells what has become of it, or that the broker is away.
            if not isinstance(error, LanewayError) and not self._complained:
                self._complained = True
                self._app.logger.exception("a step of changing the shards of the queue %s failed", self._queue)
            self._rest(STEP_S[1])
            return False
        if step.done:
            self.resharding, self.rests_until = 0, 0.0
        else:
            self._rest(STEP_S[step.moved >= step.total])
        return step.done

    def _rest(self, seconds: float) -> None:
        self.rests_until = time.monotonic() + seconds
