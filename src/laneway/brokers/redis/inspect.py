"""Status, find, stats, lags, workers, and pages of jobs. Changes no job.

A page takes a bounded number of calls, each of which looks at a bounded number of jobs. It is not a snapshot, but a job
that was there all the time is shown once. A queue sorts its keys when a page by key is first requested, which takes
several calls.

On a Cluster jobs may be on their way to a queue (`outbox`). They count, and their status is `queued`.

No index leads from an identity to its payload: every payload would pay for it. A script searches a few payloads. If
a key has more, `ask` searches them page by page, so that no other client waits for long.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ...broker import Listing, Order, Page
from ...jobs.data import JobView, QueueStats, Status, WorkerView
from ...jobs.shards import shard_of
from ..page_cursor import Position, check_order, check_start, read_position, write_position
from ..shared import SHOWN, SHOWN_IN_LISTING
from .client.server import RedisClient
from .codec import ViewRecord
from .layout import Layouts
from .outbox import ClusterOutbox
from .script import load

#: How many payloads one step searches: at first, when their size is unknown, and at most. Then the characters per step.
FEW, MANY, CHARS = 16, 1_000, 4_000_000


def ask(layouts: Layouts, script: str, queue: str, *, identity: str | None, **args: object) -> list[Any]:
    """A script's answer about one payload of a job or, if `identity` is None, about the whole job."""
    found: list[bytes] = []
    while True:
        answer = layouts.ask(script, queue, *found, identity=identity, **args)
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
_read_lags = msgspec.msgpack.Decoder(list[float]).decode
_read_worker = msgspec.json.Decoder(WorkerView).decode
_read_shards = msgspec.json.Decoder(dict[str, list[int]]).decode


# -- numbers -------------------------------------------------------------------------------------------


class _StoredStats(msgspec.Struct, array_like=True):
    """The numbers of a queue; see scripts/stats.lua."""

    length: int
    delayed: int
    retries: int
    dead: int
    busy: int
    processed: int
    failed: int
    lag: float
    paused: bool

    def view(self, queue: str, shards: int, on_their_way: int) -> QueueStats:
        return QueueStats(
            queue=queue,
            shards=shards,
            length=self.length + on_their_way,
            delayed=self.delayed,
            fresh=self.length + on_their_way - self.retries,
            retries=self.retries,
            dead=self.dead,
            busy=self.busy,
            processed=self.processed,
            failed=self.failed,
            lag=float(self.lag),
            paused=self.paused,
        )


_read_stats = msgspec.msgpack.Decoder(_StoredStats).decode


def _busy(layouts: Layouts, names: Sequence[str]) -> Counter[str]:
    """How many jobs each worker holds, in all queues."""
    busy: Counter[str] = Counter()
    for answer in layouts.ask_all("busy", layouts.read_all(), workers=names) if names else ():
        busy.update(dict(zip(names, answer, strict=True)))
    return busy


def _pairs(answer: Sequence[bytes]) -> dict[str, bytes]:
    return {answer[i].decode(): answer[i + 1] for i in range(0, len(answer), 2)}


# -- pages ---------------------------------------------------------------------------------------------

#: The limits of one call of the script: jobs looked at, jobs shown, and the bytes of their payloads.
CANDIDATES = 1_000
MOST = 250
BYTES = 2_000_000

#: The largest integer and float in a position. Lua has no larger ones.
_LAST, _LARGEST = 2**53, 1.7e308


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
            return view.key, 0.0, 0, view.key
        at = view.perform_at if view.buried_at is None else view.buried_at
        return view.retry_count if self.order == "retry_count" else at, at, view.seq, view.key


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


def _page(layouts: Layouts, queue: str, request: PageRequest) -> Page:
    found: dict[str, tuple[Position, JobView]] = {}  # by key: a job may be moved between two calls, and be met again
    place: Position | bool | None = request.place
    while len(found) < request.limit and place is not False:
        _, part, shards = layouts.ask(
            "listing",
            queue,
            which=request.which,
            order=request.order,
            reverse=request.reverse,
            place=place,
            count=min(request.limit - len(found), MOST),
            payloads=SHOWN_IN_LISTING,
            bytes=BYTES,
            candidates=CANDIDATES,
        )
        reply = _read_part(part)
        for view in reply.views:
            found.setdefault(view.key, (request.position(view), view.job_view(queue, shard_of(view.key, shards))))
        if reply.reached is not True:
            place = reply.reached
    rows = list(found.values())
    last = write_position(request.order, rows[-1][0]) if rows and len(rows) == request.limit else None
    return Page([view for _, view in rows], last)


# -- the tier ------------------------------------------------------------------------------------------


class RedisInspect:
    """The inspect tier, and the verb `status`."""

    def __init__(self, layouts: Layouts, outbox: ClusterOutbox | None) -> None:
        self._layouts = layouts
        self._outbox = outbox

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        status = self._stored_status(queue, key, identity)
        if status != "gone" or self._outbox is None:
            return status
        if any(identity in (None, job.identity) for job in self._outbox.find(queue, key)):
            return "queued"
        return self._stored_status(queue, key, identity)  # it may have been delivered in between

    def _stored_status(self, queue: str, key: str, identity: str | None) -> Status:
        status: Status = _read_status(ask(self._layouts, "status", queue, identity=identity, key=key)[1])
        return status

    def queues(self) -> dict[str, int]:
        return {layout.queue: layout.shards for layout in self._layouts.read_all()}

    def exists(self, queue: str) -> bool:
        return queue in self.queues()

    def stats(self) -> list[QueueStats]:
        # First: a job that is delivered in between is found in its queue.
        on_their_way: Counter[str] = Counter() if self._outbox is None else self._outbox.waiting()
        layouts = self._layouts.read_all()
        return [
            _read_stats(answer[1]).view(layout.queue, layout.shards, on_their_way[layout.queue])
            for layout, answer in zip(layouts, self._layouts.ask_all("stats", layouts), strict=True)
            if answer[0] == b"ok"  # else the server was emptied in between
        ]

    def lags(self, queue: str) -> dict[int, float]:
        lags = _read_lags(self._layouts.ask("lags", queue)[1])
        return dict(sorted((int(shard), late) for shard, late in zip(lags[::2], lags[1::2], strict=True)))

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
        _, views, shards = self._layouts.ask("find", queue, key=key, payloads=SHOWN, bytes=SHOWN_BYTES)
        return [view.job_view(queue, shard_of(key, shards)) for view in _read_views(views)]

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
        return _page(self._layouts, queue, PageRequest(which, order, reverse, place, limit))
