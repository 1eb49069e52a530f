"""Keys: the names of all Redis keys of a prefix. Knows nothing of their contents.

The keys of one queue share a hash tag, and so do the keys that concern all queues: on a Cluster each of these sets is
in one slot. scripts/parts/jobs.lua describes the contents of a queue's keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import ConfigError

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one prefix."""

    prefix: str

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):  # it is part of hash tags
            raise ConfigError(f"prefix must be 1 to 80 letters, digits, '_', '-' or '.', not {self.prefix!r}.")

    @property
    def queues(self) -> str:
        """Set: the names of all queues."""
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
        """Set: the topics that have a subscription."""
        return f"{{{self.prefix}}}:topics"

    def topic(self, topic: str) -> str:
        """Hash: the filter of each queue that has subscribed to a topic; empty if the queue gets every event."""
        return f"{{{self.prefix}}}:topic:{topic}"

    def root(self, queue: str) -> str:
        """What every key of a queue begins with. The 0 is the number of a partition: a queue has one."""
        return f"{{{self.prefix}:{queue}:0}}"

    def wakeup_lists(self, queue: str) -> tuple[str, str]:
        """Lists of one element that wakes a worker: to look at a queue, and to take a job that is due."""
        root = self.root(queue)
        return f"{root}:bell", f"{root}:bell:due"
