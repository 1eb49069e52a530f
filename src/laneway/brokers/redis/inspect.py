"""Status, find, stats, lags, workers, and pages of jobs. Changes no job.

Each script call concerns one shard, so the code is the same for one server and a Cluster. While a queue is being
resharded, a key is in one of two shards; the old shard is asked first, so that no key is missed.

A page merges the next jobs of each shard, a bounded number per call. It is not a snapshot, but a job that was there
all the time is shown once. Shards sort their keys when a page by key is first requested, which takes several calls.

No index leads from an identity to its payload: every payload would pay for it. A script searches a few payloads. If
a key has more, `ask` searches them page by page, so that no other client waits for long.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from ...broker import Listing, Order, Page
from ...jobs.data import JobView, QueueStats, Status, WorkerView
from ..page_cursor import Position, check_order, check_start, read_position, write_position
from ..shared import SHOWN, SHOWN_IN_LISTING
from .client.errors import StaleLayoutError, ensure_current
from .client.server import RedisClient
from .codec import ViewRecord
from .layout import Layout, Layouts
from .outbox import ClusterOutbox
from .script import load

#: How many payloads one step searches: at first, when their size is unknown, and at most. Then the characters per step.
FEW, MANY, CHARS = 16, 1_000, 4_000_000


def ask(layouts: Layouts, script: str, tag: str, *, identity: str | None, **args: object) -> list[Any]:
    """A script's answer about one payload of a job in one shard, or, if `identity` is None, about the whole job."""
    found: list[bytes] = []
    packed = layouts.args(identity=identity, **args)
    while True:
        answer: list[Any] = ensure_current(layouts.server.run(load(script), [tag], [packed, *found]))
        if answer[0] != b"search" or identity is None:
            return answer
        found += [answer[1], _search(layouts.server, answer[1], identity.encode())]


def _search(server: RedisClient, name: bytes, identity: bytes) -> bytes:
    """The member of a sorted set that holds the payload with this identity; empty if there is none."""
    ending = b"\0" + identity + struct.pack(">H", len(identity))
    cursor, count = b"0", FEW
    while True:
        cursor, seen, chars, member = server.run(load("search"), [name], [cursor, count, ending])
        if member or cursor == b"0":
            return bytes(member)
        count = max(1, min(MANY, CHARS * seen // max(chars, 1)))


#: `find` shows no more payloads of a job once they have this many bytes.
SHOWN_BYTES = 32_000_000

_read_views = msgspec.msgpack.Decoder(list[ViewRecord]).decode
_read_status = msgspec.msgpack.Decoder[Status](Status).decode
_read_lag = msgspec.msgpack.Decoder(float | bool).decode
_read_worker = msgspec.json.Decoder(WorkerView).decode
_read_shards = msgspec.json.Decoder(dict[str, list[int]]).decode

#: If a key is found in two shards, the status with the lowest rank counts.
_RANKS: dict[Status, int] = {"running": 0, "delayed": 1, "queued": 1, "dead": 2, "cancelled": 3, "gone": 4}


# -- one job -------------------------------------------------------------------------------------------


def status(layouts: Layouts, queue: str, key: str, identity: str | None) -> Status:
    """The status of a job, or of one payload of it."""

    def step(layout: Layout) -> Status:
        moving = layout.record.resharding > 0
        found = [
            ask(layouts, "status", tag, identity=identity, key=key, moving=moving)[1] for tag in layout.tags_of_key(key)
        ]
        return min(map(_read_status, found), key=_RANKS.__getitem__)

    return layouts.attempt(queue, step)


def _ask(layouts: Layouts, layout: Layout, script: str, tag: str, **args: object) -> Any:
    return layouts.ask(script, tag, moving=layout.record.resharding > 0, **args)[1]


# -- numbers -------------------------------------------------------------------------------------------


class _ShardStats(msgspec.Struct, array_like=True):
    """The counts of one shard."""

    length: int
    delayed: int
    retries: int
    dead: int
    busy: int
    processed: int
    failed: int
    lag: float | bool


_read_numbers = msgspec.msgpack.Decoder(_ShardStats).decode


def _sum(layout: Layout, answers: Sequence[Any]) -> QueueStats:
    parts = [_read_numbers(ensure_current(answer)[1]) for answer in answers]

    def total(number: Callable[[_ShardStats], float]) -> int:
        return int(sum(map(number, parts)))

    length, retries = total(lambda part: part.length), total(lambda part: part.retries)
    return QueueStats(
        queue=layout.queue,
        shards=layout.shards,
        length=length,
        delayed=total(lambda part: part.delayed),
        fresh=length - retries,
        retries=retries,
        dead=total(lambda part: part.dead),
        busy=total(lambda part: part.busy),
        processed=layout.record.processed + total(lambda part: part.processed),
        failed=layout.record.failed + total(lambda part: part.failed),
        lag=max(float(part.lag) for part in parts),
        paused=layout.record.paused,
    )


def _ask_all(layouts: Layouts, known: Sequence[Layout], script: str) -> list[Any]:
    """A script's answers for all shards of some queues."""
    calls = []
    for layout in known:
        args = [layouts.args(moving=layout.record.resharding > 0)]
        calls += [(load(script), [tag], args) for tag in layout.all_tags]
    return layouts.server.run_all(calls)


def _busy(layouts: Layouts, names: Sequence[str]) -> dict[str, int]:
    """How many jobs each worker holds, in all queues."""
    args = [layouts.args(workers=names)]
    tags = [tag for layout in layouts.read_all() for tag in layout.all_tags] if names else []
    answers = layouts.server.run_all([(load("busy"), [tag], args) for tag in tags])
    return {name: sum(answer[n] for answer in answers) for n, name in enumerate(names)}


def _pairs(answer: Sequence[bytes]) -> dict[str, bytes]:
    return {answer[i].decode(): answer[i + 1] for i in range(0, len(answer), 2)}


#: The limits of one call of the script: jobs looked at, jobs shown, and the bytes of their payloads.
CANDIDATES = 1_000
MOST = 250
BYTES = 2_000_000

#: The largest integer and float in a position. Lua has no larger ones.
_LAST, _LARGEST = 2**53, 1.7e308


#: A job and its position.
Found = tuple[Position, JobView]


class PageRequest(msgspec.Struct):
    """The request for a page."""

    which: Listing
    order: Order
    reverse: bool
    #: The page begins after this position; None: with the first job.
    place: Position | None
    limit: int

    def position(self, view: ViewRecord) -> Position:
        """The position of a job."""
        if self.order == "key":
            return view.key, 0.0, 0, view.key  # a key found in two shards has one position
        at = view.perform_at if view.buried_at is None else view.buried_at
        return view.retry_count if self.order == "retry_count" else at, at, view.seq, view.key

    def precedes(self, one: Position, other: Position) -> bool:
        return one > other if self.reverse else one < other


class _PageReply(msgspec.Struct, array_like=True):
    """The script's reply."""

    views: list[ViewRecord]
    #: The script has looked at every job up to this position. False: at the end. True: it is still sorting the keys.
    reached: tuple[float | str, float, int, str] | bool


_read_part = msgspec.msgpack.Decoder(_PageReply).decode


def _begin(order: Order, reverse: bool, start: float | str | None, after: Position | None) -> Position | None:
    """The position after which a page begins. The page holds no job before `start`, but may hold `start` itself."""
    if after is not None:
        value, at, arrival, key = after
        after = (value, 0.0, 0, value) if order == "key" else (value, at, max(0, min(arrival, _LAST)), key)
    if start is None:
        return after
    if not isinstance(start, str):
        start = max(-_LARGEST, min(start, _LARGEST))
    edge = (start, math.inf if reverse else -math.inf, 0, "")
    return edge if after is None else min(edge, after) if reverse else max(edge, after)


def _merged(found: list[Found], more: list[Found], request: PageRequest) -> list[Found]:
    """Two pages merged into one: each key once, in order, and no more jobs than requested."""
    keys = {view.key for _, view in found}
    found += [each for each in more if each[1].key not in keys]
    return sorted(found, key=lambda each: each[0], reverse=request.reverse)[: request.limit]


class _ShardPages:
    """The jobs of one shard that were read but are not on the page yet."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.views: deque[tuple[Position, ViewRecord]] = deque()
        #: Every job up to this position has been read; None: no job.
        self.reached: Position | None = None
        self.ended = False

    def take(self, part: _PageReply, request: PageRequest) -> None:
        self.views.extend((request.position(view), view) for view in part.views)
        if isinstance(part.reached, bool):
            self.ended = not part.reached
        else:
            self.reached = part.reached


def _first(layouts: Layouts, layout: Layout, tags: Sequence[str], request: PageRequest) -> list[Found]:
    """The first jobs of some shards, in order."""
    lanes = [_ShardPages(tag) for tag in tags]
    found: list[Found] = []
    keys: set[str] = set()
    while len(found) < request.limit:
        best = _best(lanes, request)
        hungry = [lane for lane in lanes if _may_precede(lane, best, request)]
        if hungry:
            _feed(layouts, layout, lanes, hungry, request, request.limit - len(found))
        elif best is None:
            break
        else:
            position, view = best.views.popleft()
            if view.key not in keys:  # else it was moved between two reads
                keys.add(view.key)
                found.append((position, view.job_view(layout.queue, layout.shard(best.tag))))
    return found


def _best(lanes: Sequence[_ShardPages], request: PageRequest) -> _ShardPages | None:
    """The lane whose next job comes first."""
    best: _ShardPages | None = None
    for lane in lanes:
        if lane.views and (best is None or request.precedes(lane.views[0][0], best.views[0][0])):
            best = lane
    return best


def _may_precede(lane: _ShardPages, best: _ShardPages | None, request: PageRequest) -> bool:
    """Whether a lane must be read further before the next job of the page is known."""
    if lane.views or lane.ended:
        return False
    return best is None or lane.reached is None or request.precedes(lane.reached, best.views[0][0])


def _feed(
    layouts: Layouts,
    layout: Layout,
    lanes: Sequence[_ShardPages],
    hungry: Sequence[_ShardPages],
    request: PageRequest,
    wanted: int,
) -> None:
    """Read further in the hungry lanes, as many jobs of each as the page is likely to need."""
    share = wanted / len(lanes)
    count = min(wanted, math.ceil(share + 3 * math.sqrt(share)), MOST)
    calls = []
    for lane in hungry:
        place = request.place if lane.reached is None else lane.reached
        args = layouts.args(
            which=request.which,
            order=request.order,
            reverse=request.reverse,
            place=place,
            count=count,
            payloads=SHOWN_IN_LISTING,
            bytes=BYTES,
            candidates=CANDIDATES,
            moving=layout.record.resharding > 0,
        )
        calls.append((load("listing"), [lane.tag], [args]))
    for lane, answer in zip(hungry, layouts.server.run_all(calls), strict=True):
        lane.take(_read_part(ensure_current(answer)[1]), request)


class RedisInspect:
    """The inspect tier."""

    def __init__(self, layouts: Layouts, outbox: ClusterOutbox | None) -> None:
        self._layouts = layouts
        self._outbox = outbox

    def queues(self) -> dict[str, int]:
        return {layout.queue: layout.shards for layout in self._layouts.read_all()}

    def exists(self, queue: str) -> bool:
        return queue in self.queues()

    def stats(self) -> list[QueueStats]:
        known = self._layouts.read_all()
        answers = iter(_ask_all(self._layouts, known, "stats"))
        said = {layout.queue: [next(answers) for _ in layout.all_tags] for layout in known}

        def again(layout: Layout) -> QueueStats:
            return _sum(layout, _ask_all(self._layouts, [layout], "stats"))

        found = []
        for layout in known:
            try:
                found.append(_sum(layout, said[layout.queue]))
            except StaleLayoutError:
                found.append(self._layouts.attempt(layout.queue, again))
        return found

    def lags(self, queue: str) -> dict[int, float]:
        def step(layout: Layout) -> dict[int, float]:
            found: dict[int, float] = {}
            for tag, answer in zip(layout.all_tags, _ask_all(self._layouts, [layout], "lags"), strict=True):
                shard, lag = layout.shard(tag), _read_lag(ensure_current(answer)[1])
                if not isinstance(lag, bool) and shard < layout.shards:
                    found[shard] = max(lag, found.get(shard, 0.0))
            return dict(sorted(found.items()))

        return self._layouts.attempt(queue, step)

    def workers(self) -> list[WorkerView]:
        keys = self._layouts.keys
        workers, stored_times, ended = self._layouts.server.do_all(
            [("HGETALL", keys.workers), ("HGETALL", keys.times), ("ZRANGE", keys.dead, 0, -1)]
        )
        views, times, dead = _pairs(workers), _pairs(stored_times), {name.decode() for name in ended}
        found = {name: _read_worker(view) for name, view in views.items() if not name.startswith("shards:")}
        busy = _busy(self._layouts, list(found))
        for name, view in found.items():
            # Of a worker that is leaving right now, some fields may be gone already.
            view.started_at = float(times.get(f"started:{name}", 0.0))
            view.seen_at = float(times.get(f"seen:{name}", view.started_at))
            view.shards = _read_shards(views.get(f"shards:{name}", b"{}"))
            view.dead, view.busy = name in dead, busy[name]
        return sorted(found.values(), key=lambda view: (view.started_at, view.id))

    def find(self, queue: str, key: str) -> list[JobView]:
        def step(layout: Layout) -> list[JobView]:
            found: dict[int, JobView] = {}
            for tag in layout.tags_of_key(key):
                views = _read_views(
                    _ask(self._layouts, layout, "find", tag, key=key, payloads=SHOWN, bytes=SHOWN_BYTES)
                )
                for view in views:
                    found.setdefault(_RANKS[view.status], view.job_view(queue, layout.shard(tag)))
            return [found[rank] for rank in sorted(found)]

        return self._layouts.attempt(queue, step)

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        order = check_order(which, order)
        check_start(order, start)
        place = _begin(order, reverse, start, None if after is None else read_position(order, after))
        request = PageRequest(which, order, reverse, place, limit)

        def step(layout: Layout) -> Page:
            found = _first(self._layouts, layout, layout.tags, request)
            if layout.next_tags:
                # The new shards are read last, so a job that moves in the meantime is found there.
                found = _merged(found, _first(self._layouts, layout, layout.next_tags, request), request)
            last = write_position(order, found[-1][0]) if found and len(found) == limit else None
            return Page([view for _, view in found], last)

        return self._layouts.attempt(queue, step)

    def undelivered(self, queues: Collection[str]) -> bool:
        return self._outbox is not None and self._outbox.holds(queues)
