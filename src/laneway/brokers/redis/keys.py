"""Keys: the names of all Redis keys of a prefix. Knows nothing of their contents.

The keys of one shard share a hash tag, and so do the keys that concern all queues: on a Cluster each of these sets
is in one slot. Shards of different epochs never share a key. scripts/parts/jobs.lua describes the contents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import ConfigError

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one prefix. Those of one shard share a hash tag, and so do those that are about all queues."""

    prefix: str

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):  # it stands in hash tags
            raise ConfigError(f"prefix must be 1 to 80 letters, digits, '_', '-' or '.', not {self.prefix!r}.")

    @property
    def queues(self) -> str:
        """Hash: the record of each queue."""
        return f"{{{self.prefix}}}:queues"

    @property
    def workers(self) -> str:
        """Hash: each worker's view, and under `shards:<id>` the shards that it serves."""
        return f"{{{self.prefix}}}:workers"

    @property
    def leases(self) -> str:
        """Hash: the renewal counter of each living worker."""
        return f"{{{self.prefix}}}:leases"

    @property
    def times(self) -> str:
        """Hash: when each worker started and was last seen."""
        return f"{{{self.prefix}}}:times"

    @property
    def dead(self) -> str:
        """Sorted set: workers whose lease has ended, by when."""
        return f"{{{self.prefix}}}:dead"

    @property
    def topics(self) -> str:
        """Set: the topics that somebody has subscribed to."""
        return f"{{{self.prefix}}}:topics"

    def topic(self, topic: str) -> str:
        """Hash: the filter of each queue that has subscribed to a topic; empty if it wants everything."""
        return f"{{{self.prefix}}}:topic:{topic}"

    def wakeup_list(self, queue: str) -> str:
        """List: rung when something is put into a queue; it never holds more than one element."""
        return f"{{{self.prefix}}}:bell:{queue}"

    def due_wakeup_list(self, queue: str) -> str:
        """List: rung instead by scripts that know that something is due."""
        return f"{self.wakeup_list(queue)}:due"

    def tag(self, queue: str, epoch: int, shard: int) -> str:
        """What every key of one shard begins with. Shards of different epochs never share a key."""
        return f"{{{self.prefix}:{queue}:{epoch}:{shard}}}"
