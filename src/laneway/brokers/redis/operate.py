"""Cancel, reschedule, run now, bury, delete, revive, pause and resume.

A key is in one shard or, while its queue is being resharded, in one of two. Each script call concerns one shard, so
the code is the same for one server and a Cluster. Only `revive` may need both shards in one call, which one server
allows: it reads the morgue and the queue, and the key may have been moved in one of them already. `pause` informs
the shards even if the queue is paused already: the process that paused it may have died before it informed them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ...broker import EmptyMorgueResult
from ..shared import PAGE, due_at, empty_by_pages
from .client.errors import StaleLayoutError
from .inspect import RedisInspect, ask
from .layout import TRIES, Layout, Layouts
from .script import load
from .wakeup import wake, wake_on_cluster, wakeup_keys_for

#: The tags of one call, and its keys.
_Part = tuple[tuple[str, ...], list[str]]


# -- one job -------------------------------------------------------------------------------------------


def cancel(layouts: Layouts, queue: str, key: str, identity: str | None) -> bool:
    return _act(layouts, queue, "cancel", key, identity)


def reschedule(
    layouts: Layouts, queue: str, key: str, identity: str | None, delay_s: float, perform_at: float | None
) -> bool:
    due_at(0.0, delay_s, perform_at)  # a time that is finite from 0 is finite by the server's clock too
    at = None if perform_at is None else float(perform_at)
    return _act(layouts, queue, "reschedule", key, identity, delay=float(delay_s), perform_at=at)


def _act(layouts: Layouts, queue: str, script: str, key: str, identity: str | None, **args: object) -> bool:
    def step(layout: Layout) -> bool:
        for tag in layout.tags_of_key(key):
            answer = ask(layouts, script, tag, identity=identity, key=key, **args, **_context(layouts, layout))
            if answer[0] != b"absent":
                return bool(answer[1])
        return False

    acted = layouts.attempt(queue, step)
    if acted:
        wake_on_cluster(layouts, queue)
    return acted


# -- many jobs -----------------------------------------------------------------------------------------


def _act_on_all(
    layouts: Layouts, queue: str, script: str, keys: Sequence[str], *, together: bool = False, **args: object
) -> int:
    """Run a script on many jobs. Returns how many it changed. With `together`, one call covers all shards of a key."""
    count, left = 0, list(keys)

    def step(layout: Layout) -> None:
        nonlocal count, left
        asked, left = left, []
        for home in range(1 if together or not layout.record.resharding else 2):
            parts = _parts(layout, asked, None if together else home)
            asked = []
            for (_, part), answer in zip(parts, _ask_all(layouts, layout, script, parts, args), strict=True):
                if answer[0] == b"stale":
                    left += part
                else:
                    count += answer[1]
                    asked += [part[place - 1] for place in answer[2:]]
        if left:
            raise StaleLayoutError

    if left:
        layouts.attempt(queue, step)
    if count:
        wake_on_cluster(layouts, queue)
    return count


def _parts(layout: Layout, keys: Sequence[str], home: int | None) -> list[_Part]:
    """Keys grouped by the shards to ask, a bounded number per group."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for key in keys:
        homes = layout.tags_of_key(key)
        groups.setdefault(tuple(homes if home is None else homes[home : home + 1]), []).append(key)
    return [
        (tags, group[first : first + PAGE]) for tags, group in groups.items() for first in range(0, len(group), PAGE)
    ]


def _ask_all(
    layouts: Layouts, layout: Layout, script: str, parts: Sequence[_Part], args: dict[str, object]
) -> list[Any]:
    return layouts.server.run_all(
        [
            (load(script), tags, [layouts.args(keys=keys, **args, **_context(layouts, layout, len(tags)))])
            for tags, keys in parts
        ]
    )


def _context(layouts: Layouts, layout: Layout, tags: int = 1) -> dict[str, object]:
    """The arguments about the queue that each of these scripts takes."""
    return {"moving": layout.record.resharding > 0, "bells": wakeup_keys_for(layouts, layout.queue, tags)}


# -- queues --------------------------------------------------------------------------------------------


def _set_paused(layouts: Layouts, queue: str, *, paused: bool) -> bool:
    """Note in the queue's record whether it is paused, and tell its shards. Returns whether that was a change.

    It tells the shards even if the record did not change: the process that changed it may have died before.
    """
    changed = layouts.server.run(load("pause"), [layouts.keys.queues], [layouts.args(queue=queue, paused=paused)])
    if changed is None:
        return False
    layouts.forget(queue)
    for _ in range(TRIES):
        layout = layouts.get(queue)
        layouts.open(layout, tell=True)
        layouts.forget(queue)
        # If two processes do this at once, the last one to tell the shards then reads the true record, and tells that.
        true = layouts.get(queue)
        if (true.record.paused, true.all_tags) == (layout.record.paused, layout.all_tags):
            break
    if not paused:
        wake(layouts, queue)
    return bool(changed)


class RedisOperate:
    """The operate tier."""

    def __init__(self, layouts: Layouts, inspect: RedisInspect) -> None:
        self._layouts = layouts
        self._inspect = inspect

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        return _act_on_all(self._layouts, queue, "run_now", list(dict.fromkeys(keys)))

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return _act_on_all(self._layouts, queue, "end_failed", keys, bury=True)

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return _act_on_all(self._layouts, queue, "end_failed", keys)

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        return _act_on_all(self._layouts, queue, "revive", keys, together=not self._layouts.server.is_cluster)

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        return _act_on_all(self._layouts, queue, "delete_dead", keys)

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        return empty_by_pages(self._inspect, self, queue, revive=revive, most=most)

    def pause(self, queue: str) -> bool:
        return _set_paused(self._layouts, queue, paused=True)

    def resume(self, queue: str) -> bool:
        return _set_paused(self._layouts, queue, paused=False)
