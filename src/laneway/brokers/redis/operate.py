"""Cancel, reschedule, run now, bury, delete, revive, pause and resume."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ...broker import EmptyMorgueResult
from ..shared import PAGE, due_at, empty_by_pages
from .inspect import RedisInspect, ask
from .layout import Layouts
from .script import load


def cancel(layouts: Layouts, queue: str, key: str, identity: str | None) -> bool:
    return bool(ask(layouts, "cancel", queue, identity=identity, key=key)[1])


def reschedule(
    layouts: Layouts, queue: str, key: str, identity: str | None, delay_s: float, perform_at: float | None
) -> bool:
    due_at(0.0, delay_s, perform_at)  # a time that is finite from 0 is finite by the server's clock too
    at = None if perform_at is None else float(perform_at)
    return bool(ask(layouts, "reschedule", queue, identity=identity, key=key, delay=float(delay_s), perform_at=at)[1])


class RedisOperate:
    """The operate tier."""

    def __init__(self, layouts: Layouts, inspect: RedisInspect) -> None:
        self._layouts = layouts
        self._inspect = inspect

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        return self._act_on_all("run_now", queue, list(dict.fromkeys(keys)))

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._act_on_all("end_failed", queue, keys, bury=True)

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._act_on_all("end_failed", queue, keys)

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        return self._act_on_all("revive", queue, keys)

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        return self._act_on_all("delete_dead", queue, keys)

    def _act_on_all(self, script: str, queue: str, keys: Sequence[str], **args: object) -> int:
        """Run a script on many jobs, some at a time. Returns how many it changed."""
        pages = [keys[first : first + PAGE] for first in range(0, len(keys), PAGE)]
        return sum(int(self._layouts.ask(script, queue, keys=page, **args)[1]) for page in pages)

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        return empty_by_pages(self._inspect, self, queue, revive=revive, most=most)

    def pause(self, queue: str) -> bool:
        return self._set_paused(queue, paused=True)

    def resume(self, queue: str) -> bool:
        return self._set_paused(queue, paused=False)

    def _set_paused(self, queue: str, *, paused: bool) -> bool:
        layouts = self._layouts
        return bool(layouts.server.run(load("pause"), [layouts.keys.root(queue)], [layouts.args(paused=paused)]))
