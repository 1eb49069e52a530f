"""How the Redis broker looks at single jobs, at numbers and at workers. Pages of jobs are in `listing.py`.

Each call of a script is about one shard, so that all this is the same on one server and on a cluster. While a queue is
being resharded a key is in one of two shards: the one that it leaves is asked first, so that nobody misses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...jobs.data import JobView, QueueStats, Status, WorkerView
from .codec import View
from .layout import Layout, Layouts, Stale, fresh
from .script import load
from .searching import ask

#: How many payloads of a job are shown when it is asked for; and no more when they are so many bytes.
SHOWN = 1_000
SHOWN_BYTES = 32_000_000

_read_views = msgspec.msgpack.Decoder(list[View]).decode
_read_status = msgspec.msgpack.Decoder[Status](Status).decode
_read_lag = msgspec.msgpack.Decoder(float | bool).decode
_read_worker = msgspec.json.Decoder(WorkerView).decode
_read_shards = msgspec.json.Decoder(dict[str, list[int]]).decode

#: If a key is found in two places, the first of these is what it is.
_RANKS: dict[Status, int] = {"running": 0, "delayed": 1, "queued": 1, "dead": 2, "cancelled": 3, "gone": 4}


# -- one job -------------------------------------------------------------------------------------------


def status(layouts: Layouts, queue: str, key: str, identity: str | None) -> Status:
    """Where a job is, or one payload of it."""

    def step(layout: Layout) -> Status:
        moving = layout.record.resharding > 0
        found = [ask(layouts, "status", tag, identity=identity, key=key, moving=moving)[1] for tag in layout.homes(key)]
        return min(map(_read_status, found), key=_RANKS.__getitem__)

    return layouts.attempt(queue, step)


def find(layouts: Layouts, queue: str, key: str) -> list[JobView]:
    """A key's job wherever there is one."""

    def step(layout: Layout) -> list[JobView]:
        found: dict[int, JobView] = {}
        for tag in layout.homes(key):
            views = _read_views(_ask(layouts, layout, "find", tag, key=key, payloads=SHOWN, bytes=SHOWN_BYTES))
            for view in views:
                found.setdefault(_RANKS[view.status], view.shown(queue, layout.shard(tag)))
        return [found[rank] for rank in sorted(found)]

    return layouts.attempt(queue, step)


def _ask(layouts: Layouts, layout: Layout, script: str, tag: str, **args: object) -> Any:
    return layouts.ask(script, tag, moving=layout.record.resharding > 0, **args)[1]


# -- numbers -------------------------------------------------------------------------------------------


class _Numbers(msgspec.Struct, array_like=True):
    """A shard in numbers."""

    length: int
    delayed: int
    retries: int
    dead: int
    busy: int
    processed: int
    failed: int
    lag: float | bool


_read_numbers = msgspec.msgpack.Decoder(_Numbers).decode


def stats(layouts: Layouts) -> list[QueueStats]:
    """Every queue in numbers."""
    known = layouts.read_all()
    answers = iter(_ask_all(layouts, known, "stats"))
    said = {layout.queue: [next(answers) for _ in layout.all_tags] for layout in known}

    def again(layout: Layout) -> QueueStats:
        return _sum(layout, _ask_all(layouts, [layout], "stats"))

    found = []
    for layout in known:
        try:
            found.append(_sum(layout, said[layout.queue]))
        except Stale:
            found.append(layouts.attempt(layout.queue, again))
    return found


def _sum(layout: Layout, answers: Sequence[Any]) -> QueueStats:
    parts = [_read_numbers(fresh(answer)[1]) for answer in answers]

    def total(number: Callable[[_Numbers], float]) -> int:
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


def lags(layouts: Layouts, queue: str) -> dict[int, float]:
    """How late the shards of a queue are that have something due."""

    def step(layout: Layout) -> dict[int, float]:
        found: dict[int, float] = {}
        for tag, answer in zip(layout.all_tags, _ask_all(layouts, [layout], "lags"), strict=True):
            shard, lag = layout.shard(tag), _read_lag(fresh(answer)[1])
            if not isinstance(lag, bool) and shard < layout.shards:
                found[shard] = max(lag, found.get(shard, 0.0))
        return dict(sorted(found.items()))

    return layouts.attempt(queue, step)


def _ask_all(layouts: Layouts, known: Sequence[Layout], script: str) -> list[Any]:
    """What a script says about all shards of some queues."""
    calls = []
    for layout in known:
        args = [layouts.args(moving=layout.record.resharding > 0)]
        calls += [(load(script), [tag], args) for tag in layout.all_tags]
    return layouts.server.run_all(calls)


# -- workers -------------------------------------------------------------------------------------------


def workers(layouts: Layouts) -> list[WorkerView]:
    """Every worker that is known, those that began first before the others."""
    keys = layouts.keys
    stored, told, ended = layouts.server.do_all(
        [("HGETALL", keys.workers), ("HGETALL", keys.times), ("ZRANGE", keys.dead, 0, -1)]
    )
    views, times, dead = _pairs(stored), _pairs(told), {name.decode() for name in ended}
    found = {name: _read_worker(view) for name, view in views.items() if not name.startswith("shards:")}
    busy = _busy(layouts, list(found))
    for name, view in found.items():
        # A worker that leaves at this moment may be known by half.
        view.started_at = float(times.get(f"started:{name}", 0.0))
        view.seen_at = float(times.get(f"seen:{name}", view.started_at))
        view.shards = _read_shards(views.get(f"shards:{name}", b"{}"))
        view.dead, view.busy = name in dead, busy[name]
    return sorted(found.values(), key=lambda view: (view.started_at, view.id))


def _busy(layouts: Layouts, names: Sequence[str]) -> dict[str, int]:
    """How many jobs each worker holds, of all queues."""
    args = [layouts.args(workers=names)]
    tags = [tag for layout in layouts.read_all() for tag in layout.all_tags] if names else []
    answers = layouts.server.run_all([(load("busy"), [tag], args) for tag in tags])
    return {name: sum(answer[n] for answer in answers) for n, name in enumerate(names)}


def _pairs(answer: Sequence[bytes]) -> dict[str, bytes]:
    return {answer[i].decode(): answer[i + 1] for i in range(0, len(answer), 2)}
