"""`Run`: a call that is about to run; `KeyedCalls` and `BatchClaims`: the unit of work that it belongs to.

A runner takes a unit of work from a lane: a claim of one call, a claim of a key's calls, or a batch, which is the
claims of several keys of one shard. Plain data; the runner changes it. `RunOutbox` remembers which call of a key
enqueued which jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...jobs.data import Claim, NewJob, Payload, StartedRun
from ...jobs.ticket import Call
from ...middleware import MiddlewareStack

if TYPE_CHECKING:
    from ...config import Isolation
    from ...context import Context
    from ..fetch.prefetch import Lane

#: What waits in a lane: a claim, or a batch of them.
Unit = Claim | list[Claim]


def claims_of(unit: Unit) -> list[Claim]:
    """The claims in a unit of work."""
    return unit if isinstance(unit, list) else [unit]


def started_of(claims: list[Claim]) -> list[StartedRun]:
    """What to blame if the process dies while a batch is read or run."""
    return [StartedRun(claim.queue, claim.key, claim.token) for claim in claims]


class RunOutbox(list[NewJob]):
    """What the calls of a key have enqueued, in order, so that it can be told which of them did."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        super().__init__()
        #: Where in it the jobs of each call end.
        self._ends: list[int] = []

    @property
    def calls(self) -> int:
        """How many calls there were, those that enqueued nothing included."""
        return len(self._ends)

    def add(self, jobs: Iterable[NewJob]) -> None:
        """The next call has enqueued these."""
        self.extend(jobs)
        self._ends.append(len(self))

    def of(self, call: int) -> list[NewJob]:
        """What one call has enqueued."""
        return self[self._ends[call - 1] if call else 0 : self._ends[call]]

    def before(self, call: int) -> RunOutbox:
        """What those before it have."""
        found = RunOutbox()
        for number in range(call):
            found.add(self.of(number))
        return found


class KeyedCalls:
    """How far a keyed claim has got: its calls are runs of their own, and are settled together."""

    __slots__ = ("claim", "done", "lane", "outbox", "suspect", "used_s")

    def __init__(self, lane: Lane, claim: Claim) -> None:
        self.lane = lane
        self.claim = claim
        #: How many calls, from the front, are finished.
        self.done = 0
        #: What those have enqueued.
        self.outbox = RunOutbox()
        #: Seconds that have gone into running them.
        self.used_s = 0.0
        #: Whether the last of them has had its process die before: then nothing is run behind it.
        self.suspect = False

    def finished(self, outbox: Iterable[NewJob] = ()) -> None:
        """The call whose turn it was is done, and has enqueued this."""
        self.done += 1
        self.outbox.add(outbox)

    @property
    def current(self) -> Payload:
        """The call whose turn it is."""
        return self.claim.payloads[self.done]


class BatchClaims:
    """The claims of a batch whose payloads could be read."""

    __slots__ = ("batch", "claims")

    def __init__(self, claims: list[Claim], batch: Any) -> None:
        self.claims = claims
        self.batch = batch


class Run:
    """A call that has been read and is about to be carried out."""

    __slots__ = ("apart", "began", "call", "calls", "claim", "context", "gathered", "lane", "number", "slot", "stack")

    def __init__(
        self,
        lane: Lane,
        claim: Claim,
        call: Call,
        context: Context,
        began: float,
        calls: KeyedCalls | None = None,
        gathered: BatchClaims | None = None,
        apart: Isolation | None = None,
    ) -> None:
        self.lane = lane
        #: For a batch the first of its claims.
        self.claim = claim
        self.call = call
        self.context = context
        self.began = began
        self.calls = calls
        self.gathered = gathered
        #: How it is kept apart, if it is carried out in another process; its arguments are read there.
        self.apart: Isolation | None = apart
        #: The middleware around it, once it has been entered.
        self.stack: MiddlewareStack | None = None
        #: Where it stands on the board.
        self.slot = -1
        #: What it was told of as; 0 before it has started, and when nobody wants to know.
        self.number = 0

    @property
    def id(self) -> str:
        """A keyed call's own id; any other run is known by its key."""
        return self.calls.current.identity if self.calls else ""

    @property
    def attempt(self) -> int:
        """How often this has been tried."""
        return self.calls.current.attempt if self.calls else self.claim.attempt

    def started(self) -> list[StartedRun]:
        """What to blame if the process dies now."""
        if self.gathered is not None:
            return started_of(self.gathered.claims)
        claim = self.claim
        return [StartedRun(claim.queue, claim.key, claim.token, self.id)]

    @property
    def keys(self) -> int:
        """How many keys it is about: more than one in a batch."""
        return len(self.gathered.claims) if self.gathered else 1
