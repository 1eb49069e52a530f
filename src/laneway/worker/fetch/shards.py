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

#: The shard that `seq` put first in each queue's last turn: its only state.
_began: dict[str, int] = {}


def lag(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """The shard with the most overdue job first. If it is the worker's scheduler, the broker sorts the shards."""
    return sorted(lags, key=lambda shard: (-lags[shard], shard))


def seq(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """The shards in order. Each turn starts with the shard behind the one that the last turn started with.

    If it is the worker's scheduler, `ShardAssignment` does this without calling it.
    """
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
    """Divide the shards between `nodes` processes. Process number `node`, counted from 0, serves the shards i with
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


#: The lower bound of two limits that a turn gets: calls of one key, and keys.
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
        #: Whether turns name shards at all. If not, the broker may claim from any shard, whatever their number.
        self._choosing = splitter is not default_splitter or scheduler is not lag
        #: The epoch for which the shards are chosen; 0: not known yet.
        self.epoch = 0
        self._count = 0
        #: The shards that this process serves; None: all of them.
        self.served: list[int] | None = None
        self._turns = 0
        #: The number of claims of the last turn that brought any, and the average number of calls in each.
        self._claims = FEW
        self._calls = 1
        #: How many ended calls may be unrecorded.
        self._unsettled = UNSETTLED
        #: The number of turns that share this limit. On a remote broker a turn is under way while the claims of the
        #: last one run.
        self._portions = 2 if app.broker.capabilities.remote else 1
        self._complained = False

    @property
    def partial(self) -> bool:
        """Whether the queue may have due jobs that this process does not claim."""
        return self.served is not None or self._scheduler not in (lag, seq)

    # -- shards ----------------------------------------------------------------------------------------

    def declared(self, count: int) -> None:
        """Choose shards for this shard count. The first answer says whether the count is still right."""
        if self._choosing and not self._count:
            self.served, self._count = self._split(count), count

    def update_shards(self, answer: Answer) -> bool:
        """Take over the shard count and epoch of an answer. True: the served shards have changed."""
        if not self._choosing or answer.epoch == self.epoch:
            return False
        self.epoch = answer.epoch
        if answer.shards == self._count:
            return False
        before, self._count = self.served, answer.shards
        try:
            self.served = self._split(answer.shards)
        except Exception:
            # A splitter is binding, and this one has named no shard: another process may serve any of them.
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
        """Adapt to how long a unit of work takes. Returns how many ended units may be unrecorded."""
        in_time = int(UNSETTLED_S * self._calls / typical_s) if typical_s > 0 else 0
        self._unsettled = max(UNSETTLED, min(in_time, LARGEST_LANE))
        return max(1, self._unsettled // self._calls)

    def ask(self, turn: Turn, units: int) -> None:
        """Let a turn ask for this many units of work, but for not much more than may be held unsettled.

        Small turns cost a busy worker little, and few runs end while one is under way.
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
            turn.limit = 0  # the first answer tells the epoch for which to choose shards
            return
        turn.epoch = self.epoch
        turn.shards, turn.in_order = self._shards()

    def _shards(self) -> tuple[Sequence[int] | None, bool]:
        """The shards for the next turn, None for all, and whether the broker must take them in this order."""
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
        """The lag of each of our shards that has due jobs. None: the broker does not answer."""
        try:
            lags = self._app.broker.inspect.lags(self._queue)
        except BrokerError:
            return None  # the turn gets the same error, and reports it
        return {shard: lags[shard] for shard in mine if shard in lags}

    def units(self, claims: list[Claim]) -> Sequence[Unit]:
        """Group claims into units of work. The claims of a collecting queue become batches, each of one shard."""
        if claims and not self._collecting:
            self._claims = len(claims)
            self._calls = max(1, sum(len(claim.payloads) for claim in claims) // len(claims))
        if self._batch_size == 1:
            return claims
        units: list[list[Claim]] = []
        for claim in claims:
            last = units[-1] if units else []
            # A key whose process has died runs alone: if the process dies again, no other key is to blame.
            joins = last and not (claim.deaths or last[0].deaths)
            if joins and last[0].shard == claim.shard and len(last) < self._batch_size:
                last.append(claim)
            else:
                units.append([claim])
        return [unit if unit[0].kind == Kind.COLLECTING else unit[0] for unit in units]


def _max_payloads(app: Laneway, queue: str) -> int | None:
    """The smallest `max_payloads` of the tasks of this queue; None: as many as the broker hands out."""
    options = [task.options for task in app.registry if (task.options.queue or DEFAULT_QUEUE) == queue]
    return min((each.max_payloads for each in options if each.max_payloads is not None), default=None)


def _is_one(shard: object, among: Iterable[int]) -> bool:
    return isinstance(shard, int) and not isinstance(shard, bool) and shard in among


#: The first and the longest rest in seconds, when the queue has due jobs and none of them is for this process.
IN_VAIN_S = (0.005, 0.1)
#: Seconds between two steps of resharding: while there are jobs to move, and when only running jobs must end.
STEP_S = (0.001, 0.02)


class ShardWatch:
    """One fetcher's view of the shards of its queue."""

    def __init__(self, app: Laneway, queue: str, share: ShardAssignment, moved: Callable[[], None]) -> None:
        self._app = app
        self._queue = queue
        self._share = share
        #: Tells the worker that this process serves other shards now.
        self._moved = moved
        #: Until this time, on the monotonic clock, the fetcher does not look for work by itself; 0: it does.
        self.rests_until = 0.0
        self._in_vain_s = 0.0
        #: The shard count that the queue is being resharded to; 0 if it is not.
        self.resharding = 0
        self._complained = False

    def rest_s(self) -> float | None:
        """Seconds that are left of the rest; None: it does not rest."""
        return max(0.0, self.rests_until - time.monotonic()) if self.rests_until else None

    def is_rested(self) -> bool:
        """Whether a rest is over. If so, clear it."""
        if not self.rests_until or time.monotonic() < self.rests_until:
            return False
        self.rests_until = 0.0
        return True

    def take_in(self, turn: Turn, answer: Answer) -> bool:
        """Process an answer, and rest if no due job may be ours. True: the epoch changed, so ask again."""
        self.resharding = answer.resharding
        self.rests_until = 0.0
        if answer.claims or not turn.limit or not self._share.partial:
            self._in_vain_s = 0.0
        else:
            # The jobs of another process may be due. Waiting for due jobs would then end at once, again and again.
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
        """Take a step of resharding, because a turn has just said that it is under way. True: it is done."""
        try:
            step = self._app.broker.shards.reshard(self._queue, self.resharding)
        except Exception as error:
            # The next turn tells how far it is, or that the broker is away.
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
