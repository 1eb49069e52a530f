"""Chooses the shards that a turn claims from: splitters, schedulers, `ShardAssignment`, `ShardWatch`.

A splitter returns the shards that this process serves; the process claims from no other shard. Every shard must be
served by some process: `laneway check` names the shards that no worker serves.

    def my_splitter(queue: str, shards: int) -> Iterable[int]:
        return range(shards) if queue == "mail" else range(0, shards, 2)

A scheduler gets the served shards with due jobs and their lag, the seconds by which the most overdue job is late. It
returns the shards to claim from, in order; it may leave some out, and may call `lag` and `seq`. It costs a broker
request per turn; `lag` and `seq` alone cost none.

    def my_scheduler(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
        late = {shard: lags[shard] for shard in lags if lags[shard] > 60}
        return lag(queue, late or lags)

`ShardAssignment` follows the broker's shard count and epoch, and sets the size of a turn. `ShardWatch` helps to
reshard the queue, because no job is claimed until that is done. It pauses the fetcher if no due job is in its shards.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...broker import Answer, Turn
from ...config import DEFAULT_QUEUE
from ...errors import BrokerError, ConfigError, LanewayError
from ...jobs.data import Claim, Kind
from ...jobs.merge import MAX_PAYLOADS
from ..run.run import Unit
from .prefetch import LARGEST_LANE, UNSETTLED, UNSETTLED_S

if TYPE_CHECKING:
    from ...app import Laneway

Scheduler = Callable[[str, Mapping[int, float]], Sequence[int]]

#: The shard that each queue's last turn by `seq` began with: all that it remembers.
_began: dict[str, int] = {}


def lag(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """The shard with the most overdue job first. Where a worker is given this itself, the broker sees to it."""
    return sorted(lags, key=lambda shard: (-lags[shard], shard))


def seq(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """One shard after the other, each turn beginning behind the one that the last began with. Where a worker is given
    this itself, the worker sees to it."""
    shards = sorted(lags)
    if not shards:
        return shards
    at = bisect_right(shards, _began.get(queue, -1)) % len(shards)
    _began[queue] = shards[at]
    return [*shards[at:], *shards[:at]]


Splitter = Callable[[str, int], Iterable[int]]

NODES, NODE = "LANEWAY_NODES", "LANEWAY_NODE"


def default_splitter(queue: str, shards: int) -> Iterable[int]:
    """Every process serves all shards."""
    return range(shards)


def by_node(nodes: int, node: int) -> Splitter:
    """Deal the shards to `nodes` processes: number `node` of them, counted from 0, serves the shards i with
    `i mod nodes == node`."""
    for name, value, least in (("nodes", nodes, 1), ("node", node, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"by_node: {name} must be a whole number from {least} on, not {value!r}.")
    if node >= nodes:
        raise ConfigError(f"by_node: node must be below nodes, counted from 0; {node} is not below {nodes}.")

    def serve(queue: str, shards: int) -> Iterable[int]:
        return range(node, shards, nodes)

    return serve


def splitter_from_environment(environ: Mapping[str, str] = os.environ) -> Splitter | None:
    """The splitter that LANEWAY_NODES and LANEWAY_NODE ask for; None without them."""
    nodes, node = environ.get(NODES), environ.get(NODE)
    if not nodes and not node:
        return None
    if not nodes or not node:
        given, missing = (NODES, NODE) if nodes else (NODE, NODES)
        raise ConfigError(f"{given} is set and {missing} is not; set both, or neither.")
    for name, text in ((NODES, nodes), (NODE, node)):
        if not text.isascii() or not text.strip().isdigit():
            raise ConfigError(f"{name} must be a whole number, not {text!r}.")
    try:
        return by_node(int(nodes), int(node))
    except ConfigError as error:
        raise ConfigError(f"{NODES}={nodes} and {NODE}={node} do not fit together. {error}") from None


#: A turn asks for no fewer calls of a key, and for no fewer keys, than this.
FEW = 10


class ShardAssignment:
    """One process's share of one queue."""

    def __init__(self, app: Laneway, queue: str, splitter: Splitter, scheduler: Scheduler) -> None:
        self._app = app
        self._queue = queue
        self._logger = app.logger
        self._splitter = splitter
        self._scheduler = scheduler
        collector = app.registry.collector_of(queue)
        self._collecting = collector is not None
        self._batch_size = collector.options.batch_size if collector else 1
        self._max_payloads = _max_payloads(app, queue)
        #: Whether turns name shards at all; otherwise the broker may take from any, whatever their number.
        self._choosing = splitter is not default_splitter or scheduler is not lag
        #: The epoch for which the shards are chosen; 0: it is not known yet.
        self.epoch = 0
        self._count = 0
        #: The shards that this process serves; None: all of them.
        self.served: list[int] | None = None
        self._turns = 0
        #: What the last turn that brought something brought: how many claims, and how many calls in each on average.
        self._claims = FEW
        self._calls = 1
        #: How many calls may have ended and not be recorded yet.
        self._unsettled = UNSETTLED
        #: In how many turns: while one is under way, what the last one brought is run.
        self._portions = 2 if app.broker.capabilities.remote else 1
        self._complained = False

    @property
    def partial(self) -> bool:
        """Whether jobs of this queue may be due that are none of ours."""
        return self.served is not None or self._scheduler not in (lag, seq)

    # -- shards ----------------------------------------------------------------------------------------

    def declared(self, count: int) -> None:
        """The queue has so many shards; whether that is still true is known with the first answer."""
        if self._choosing and not self._count:
            self.served, self._count = self._split(count), count

    def update_shards(self, answer: Answer) -> bool:
        """The broker has told its shard count and epoch. True: what is served has changed."""
        if not self._choosing or answer.epoch == self.epoch:
            return False
        self.epoch = answer.epoch
        if answer.shards == self._count:
            return False
        before, self._count = self.served, answer.shards
        try:
            self.served = self._split(answer.shards)
        except Exception:
            # What it says is binding, and it says nothing: another process may be running what is not ours.
            self._logger.exception("the splitter failed for the queue %s; none of its shards is served", self._queue)
            self.served = []
        return self.served != before

    def _split(self, count: int) -> list[int] | None:
        served = list(dict.fromkeys(self._splitter(self._queue, count)))
        if bad := [shard for shard in served if not _is_one(shard, range(count))]:
            raise ConfigError(
                f"The splitter must give shards of the queue {self._queue} from 0 to {count - 1}, not {bad[0]!r}."
            )
        return None if len(served) == count else sorted(served)

    # -- turns -----------------------------------------------------------------------------------------

    def learn(self, typical_s: float) -> int:
        """Take in how long a unit of work takes; returns how many may have ended and not be recorded yet."""
        in_time = int(UNSETTLED_S * self._calls / typical_s) if typical_s > 0 else 0
        self._unsettled = max(UNSETTLED, min(in_time, LARGEST_LANE))
        return max(1, self._unsettled // self._calls)

    def ask(self, turn: Turn, units: int) -> None:
        """Have a turn ask for so many units of work, but for not much more than may be held unsettled.

        Small turns cost a busy worker little, and keep the runs that end meanwhile few.
        """
        size = self._batch_size
        turn.limit = min(units * size, max(size, FEW, self._unsettled // self._calls // self._portions))
        turn.batch = size
        turn.max_payloads = self._max_payloads
        if not self._collecting and self._max_payloads is None:
            turn.max_payloads = max(FEW, min(self._unsettled // self._claims, MAX_PAYLOADS[Kind.KEYED]))
        if not self._choosing or not turn.limit:
            return
        if not self.epoch:
            turn.limit = 0  # first the broker must tell for which epoch shards are to be chosen
            return
        turn.epoch = self.epoch
        turn.shards, turn.in_order = self._shards()

    def _shards(self) -> tuple[Sequence[int] | None, bool]:
        """The shards for the next turn, None for all, and whether they are to be taken in this order."""
        if self._scheduler is lag:
            return self.served, False
        mine = list(range(self._count)) if self.served is None else self.served
        if self._scheduler is seq:
            at = self._turns = (self._turns + 1) % max(1, len(mine))
            return [*mine[at:], *mine[:at]], True
        try:
            lags = self._lags(mine)
            if lags is None:
                return self.served, False
            picked = list(self._scheduler(self._queue, lags)) if lags else []
            if bad := [shard for shard in picked if not _is_one(shard, mine)]:
                raise ValueError(f"{bad[0]!r} is not one of the shards that this process serves")
        except Exception:
            if not self._complained:
                self._complained = True
                self._logger.exception(
                    "the scheduler failed for the queue %s; its shards are taken by lag", self._queue
                )
            return self.served, False
        return picked, True

    def _lags(self, mine: Sequence[int]) -> dict[int, float] | None:
        """How late those of our shards are that have something due; None: the broker does not say."""
        try:
            lags = self._app.broker.inspect.lags(self._queue)
        except BrokerError:
            return None  # the turn meets the same, and says so
        return {shard: lags[shard] for shard in mine if shard in lags}

    def units(self, claims: list[Claim]) -> Sequence[Unit]:
        """Claims as units of work: those of a collecting queue in batches, each of one shard."""
        if claims and not self._collecting:
            self._claims = len(claims)
            self._calls = max(1, sum(len(claim.payloads) for claim in claims) // len(claims))
        if self._batch_size == 1:
            return claims
        units: list[list[Claim]] = []
        for claim in claims:
            last = units[-1] if units else []
            # A key whose process has died runs by itself: if it dies again, no other key is to blame.
            joins = last and not (claim.deaths or last[0].deaths)
            if joins and last[0].shard == claim.shard and len(last) < self._batch_size:
                last.append(claim)
            else:
                units.append([claim])
        return [unit if unit[0].kind == Kind.COLLECTING else unit[0] for unit in units]


def _max_payloads(app: Laneway, queue: str) -> int | None:
    """The smallest number that a task of this queue wants; None: as many as the broker hands out."""
    options = [task.options for task in app.registry if (task.options.queue or DEFAULT_QUEUE) == queue]
    return min((each.max_payloads for each in options if each.max_payloads is not None), default=None)


def _is_one(shard: object, among: Iterable[int]) -> bool:
    return isinstance(shard, int) and not isinstance(shard, bool) and shard in among


#: How long it rests when the queue has due jobs and none of them is for this process: at first, and at most.
IN_VAIN_S = (0.005, 0.1)
#: Between two steps of a change of the shard count: while there is something to move, and when what runs must end.
STEP_S = (0.001, 0.02)


class ShardWatch:
    """One fetcher's view of the shards of its queue."""

    def __init__(self, app: Laneway, queue: str, share: ShardAssignment, moved: Callable[[], None]) -> None:
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
        if self._share.update_shards(answer):
            self._moved()
        if self._share.epoch == before:
            return False
        self.rests_until = 0.0
        return True

    def help(self) -> bool:
        """Take a step of changing the shard count: a turn has just told that it is under way. True: it is done."""
        try:
            step = self._app.broker.shards.reshard(self._queue, self.resharding)
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
