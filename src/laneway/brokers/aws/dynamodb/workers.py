"""WorkerRows: the heartbeats of workers, which SQS does not know: rows under `laneway-workers`, by the worker's id.

They have no `perform_at`, so they are never taken for delayed jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from ....jobs.data import WorkerView
from ...shared import REMEMBER_DEAD_S
from .client import Row, RowClient

if TYPE_CHECKING:
    from ..account import Account

_WORKERS = "laneway-workers"
#: A worker whose last heartbeat is older than this, or than its lease if that is longer, is dead.
SILENCE_S = 35.0

_read_view = msgspec.json.Decoder(WorkerView)


class WorkerRows:
    """The heartbeats in a table."""

    def __init__(self, account: Account, rows: RowClient) -> None:
        self._account = account
        self._rows = rows

    def save(self, view: WorkerView, seen_at: float, running: Collection[str] = ()) -> None:
        """Store the heartbeat of a worker, with the ids of the jobs that it runs, if there are any."""
        row = {
            "scheduler": _WORKERS,
            "job_id": view.id,
            "view": msgspec.json.encode(view).decode(),
            "seen_at": seen_at,
            "expires_at": int(seen_at + REMEMBER_DEAD_S),
        }
        self._rows.put(row | ({"running": list(running)} if running else {}))

    def forget(self, id: str) -> None:
        self._rows.delete((_WORKERS, id))

    def all(self) -> list[WorkerView]:
        """The workers with a heartbeat in the last hour, by id. A worker that has been silent for long is dead."""
        now = self._account.clock.now()
        views = [_view_of(row, now) for row in self._rows.query(_WORKERS)]
        return [view for view in views if now - view.seen_at < REMEMBER_DEAD_S]

    def running(self) -> Iterator[str]:
        """The ids of the jobs that living workers run, as of their last heartbeats."""
        now = self._account.clock.now()
        for row in self._rows.query(_WORKERS):
            if "running" in row and not _view_of(row, now).dead:
                yield from row["running"]


def _view_of(row: Row, now: float) -> WorkerView:
    view = _read_view.decode(row["view"])
    view.seen_at = float(row["seen_at"])
    view.dead = now - view.seen_at > max(SILENCE_S, view.lease_s)
    return view
