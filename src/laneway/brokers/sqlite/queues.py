"""QueueRow: a queue's row as the broker caches it. Reads the rows and adds priorities.

Another process may add a priority at any time, so claiming and listing read the priorities again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...jobs.shards import shard_of
from .database import Transaction

_read_priorities = msgspec.json.Decoder(tuple[int, ...]).decode


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class QueueRow(msgspec.Struct, frozen=True):
    """The cached row of a queue."""

    name: str
    id: int
    shards: int
    #: Another process may have added to them since, so claiming and listing read them again.
    priorities: tuple[int, ...]
    epoch: int = 1
    #: The shard count that it is being changed to, or 0.
    target: int = 0

    def shard_of(self, key: str) -> int:
        """The shard into which a job of this key goes now."""
        return shard_of(key, self.target or self.shards)


def queues(tx: Transaction) -> dict[str, QueueRow]:
    """Every queue by its name."""
    return {
        name: QueueRow(name, id, shards, _read_priorities(priorities), epoch, target)
        for name, id, shards, priorities, epoch, target in tx.all("queues")
    }


def add_priority(tx: Transaction, name: str, priority: int) -> None:
    """Add a priority to those that a queue's claims look for."""
    queue = queues(tx)[name]  # within the transaction: another process may be adding one of its own
    priorities = sorted({*queue.priorities, priority}, reverse=True)
    tx.run("set_priorities", queue=queue.id, priorities=to_json(priorities))
