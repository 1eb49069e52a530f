"""What shards remember of what was delivered to them out of outboxes (Cluster), and when they may forget it.

An entry that was delivered and could not be removed from its outbox, because that shard is away, comes again. So what
was delivered is remembered for a week, and for ten minutes only once the entry is known to be gone: then nobody comes
with it but who had read it before. Shards are told so now and then, many at once. Should this process die before,
they remember a little more for the rest of the week.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from .client.calling import Caller
from .layout import Layouts
from .script import load

#: So many are told at once when they have come together. They are told no later than the worker's next renewal.
MANY = 500


def mark(parcel: str, number: int, key: str) -> str:
    """The name of one job of a parcel, or of the copy of an event (-1); see `undelivered` in scripts/enqueue.lua."""
    return f"{parcel}:{number}\0{key}" if number >= 0 else f"\0{key}"


class Delivered:
    """What has been delivered and removed from its outbox, and was not yet told where it was delivered to."""

    def __init__(self, layouts: Layouts) -> None:
        self._server: Caller = layouts.server
        self._lock = threading.Lock()
        #: By tag.
        self._marks: dict[str, list[str]] = {}

    def add(self, marks: Mapping[str, Sequence[str]]) -> None:
        """These need not be remembered for long."""
        with self._lock:
            for tag, some in marks.items():
                self._marks.setdefault(tag, []).extend(some)
            is_time = sum(map(len, self._marks.values())) >= MANY
        if is_time:
            self.tell()

    def tell(self) -> None:
        """Tell all shards now. Whichever cannot be reached remembers for longer."""
        with self._lock:
            marks, self._marks = self._marks, {}
        self._server.try_all([(load("delivered"), [tag], some) for tag, some in marks.items()])
