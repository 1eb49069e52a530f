"""The verb `reshard`: changes a queue's shard count while the queue is in use, a step at a time.

A job belongs to its queue, and a shard is two indices of due jobs. So only entries of these indices are moved, and all
of a queue's keys are in one slot: a step is one script, and any process may take the next one. Redis does nothing else
during a step, which is bounded by entries and bytes.
"""

from __future__ import annotations

from typing import Any

from ...broker import ReshardProgress
from ...errors import ConfigError
from ..shared import check_shards
from .layout import Layouts

#: A step moves no more entries than this, whatever its limit is, and stops when they have so many bytes.
MOST = 1_000
BYTES = 50_000


class RedisShards:
    """The shards tier."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    def reshard(self, queue: str, shards: int, *, limit: int = MOST) -> ReshardProgress:
        check_shards(queue, shards)
        limit = min(max(limit, 1), MOST)
        answer: list[Any] = self._layouts.ask("reshard", queue, shards=shards, limit=limit, bytes=BYTES)
        self._layouts.forget(queue)
        if answer[0] == b"busy":
            raise ConfigError(
                f"The queue {queue} is being changed to {answer[1]} shards; finish that first, "
                f"with `laneway reshard {queue} {answer[1]}`."
            )
        _, total, moved, running, done = answer
        return ReshardProgress(total, moved, running, done=bool(done))
