"""Pages of jobs in Redis, sorted by time, key or retry_count, either way. Changes no job.

Each shard is asked for the jobs that come next in it, a bounded number at a time, and what they say is merged here. A
page is not one moment of the queue; but whatever was there all the time is shown once. Keys are sorted by the
shard when they are first asked for, which takes several calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from ...broker import Listing, Order, Page
from ...jobs.data import JobView
from ..page_cursor import Position, check_order, check_start, read_position, write_position
from .codec import View
from .layout import Layout, Layouts, fresh
from .script import load

#: How many payloads of a job are shown.
SHOWN = 10
#: What one call of the script may cost: jobs looked at and shown, and the bytes of their payloads.
CANDIDATES = 1_000
MOST = 250
BYTES = 2_000_000

#: No position has more. Lua has no larger integers, nor floats.
_LAST, _LARGEST = 2**53, 1.7e308


#: A job, and where it stands.
Found = tuple[Position, JobView]


class Request(msgspec.Struct):
    """What a page is asked for."""

    which: Listing
    order: Order
    reverse: bool
    #: Begin beyond it; None: with the first one.
    place: Position | None
    limit: int

    def position(self, view: View) -> Position:
        """Where a job stands."""
        if self.order == "key":
            return view.key, 0.0, 0, view.key  # two places of one key are the same
        at = view.perform_at if view.buried_at is None else view.buried_at
        return view.retry_count if self.order == "retry_count" else at, at, view.seq, view.key

    def precedes(self, one: Position, other: Position) -> bool:
        return one > other if self.reverse else one < other


class _Part(msgspec.Struct, array_like=True):
    """What the script says."""

    views: list[View]
    #: It has looked at all up to this one; False at the end, True if it is not ready to look yet.
    reached: tuple[float | str, float, int, str] | bool


_read_part = msgspec.msgpack.Decoder(_Part).decode


def listing(
    layouts: Layouts,
    queue: str,
    which: Listing,
    *,
    order: Order | None,
    reverse: bool,
    start: float | str | None,
    after: str | None,
    limit: int,
) -> Page:
    """One page."""
    order = check_order(which, order)
    check_start(order, start)
    place = _begin(order, reverse, start, None if after is None else read_position(order, after))
    request = Request(which, order, reverse, place, limit)

    def step(layout: Layout) -> Page:
        found = _first(layouts, layout, layout.tags, request)
        if layout.next_tags:
            # Whatever is moved meanwhile is there by the time when these are asked.
            found = _merged(found, _first(layouts, layout, layout.next_tags, request), request)
        last = write_position(order, found[-1][0]) if found and len(found) == limit else None
        return Page([view for _, view in found], last)

    return layouts.attempt(queue, step)


def _begin(order: Order, reverse: bool, start: float | str | None, after: Position | None) -> Position | None:
    """Beyond which position a page begins: at `start` at the earliest, that itself included."""
    if after is not None:
        value, at, arrival, key = after
        after = (value, 0.0, 0, value) if order == "key" else (value, at, max(0, min(arrival, _LAST)), key)
    if start is None:
        return after
    if not isinstance(start, str):
        start = max(-_LARGEST, min(start, _LARGEST))
    edge = (start, math.inf if reverse else -math.inf, 0, "")
    return edge if after is None else min(edge, after) if reverse else max(edge, after)


def _merged(found: list[Found], more: list[Found], request: Request) -> list[Found]:
    """Of two pages, one: each key once, in order, and no more than are wanted."""
    keys = {view.key for _, view in found}
    found += [each for each in more if each[1].key not in keys]
    return sorted(found, key=lambda each: each[0], reverse=request.reverse)[: request.limit]


class _Lane:
    """What one shard has to show, as far as it has been read."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.views: deque[tuple[Position, View]] = deque()
        #: All up to this one have been read; None: none.
        self.reached: Position | None = None
        self.ended = False

    def take(self, part: _Part, request: Request) -> None:
        self.views.extend((request.position(view), view) for view in part.views)
        if isinstance(part.reached, bool):
            self.ended = not part.reached
        else:
            self.reached = part.reached


def _first(layouts: Layouts, layout: Layout, tags: Sequence[str], request: Request) -> list[Found]:
    """The first jobs of some shards, in order."""
    lanes = [_Lane(tag) for tag in tags]
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
            if view.key not in keys:  # else somebody has moved it meanwhile
                keys.add(view.key)
                found.append((position, view.shown(layout.queue, layout.shard(best.tag))))
    return found


def _best(lanes: Sequence[_Lane], request: Request) -> _Lane | None:
    """The lane whose next job comes first."""
    best: _Lane | None = None
    for lane in lanes:
        if lane.views and (best is None or request.precedes(lane.views[0][0], best.views[0][0])):
            best = lane
    return best


def _may_precede(lane: _Lane, best: _Lane | None, request: Request) -> bool:
    """Whether a lane must be read on before it is known what comes next."""
    if lane.views or lane.ended:
        return False
    return best is None or lane.reached is None or request.precedes(lane.reached, best.views[0][0])


def _feed(
    layouts: Layouts, layout: Layout, lanes: Sequence[_Lane], hungry: Sequence[_Lane], request: Request, wanted: int
) -> None:
    """Read on in the lanes that are hungry: as much of each as is likely to be needed."""
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
            payloads=SHOWN,
            bytes=BYTES,
            candidates=CANDIDATES,
            moving=layout.record.resharding > 0,
        )
        calls.append((load("listing"), [lane.tag], [args]))
    for lane, answer in zip(hungry, layouts.server.run_all(calls), strict=True):
        lane.take(_read_part(fresh(answer)[1]), request)
