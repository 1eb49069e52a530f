"""The groups of a FIFO queue, as far as this process has received them: one for each key.

The messages of a group are handed out in order of their sequence, and never beside each other: while a claim of the
group is held, the rest waits here. Local memory only.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from .holding import Held


class Group:
    """What has been received of one key and is not handed out."""

    __slots__ = ("is_claimed", "is_ready", "key", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: list[Held] = []
        #: Whether a claim of it is held; nothing else of it is handed out until that is settled.
        self.is_claimed = False
        #: Whether it stands in the buffer, to be handed out.
        self.is_ready = False

    def add(self, held: Held) -> None:
        """Put a message where its sequence says, whatever came before it."""
        insort(self.waiting, held, key=_sequence)

    def take(self, limit: int) -> list[Held]:
        """The first messages, for a claim."""
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.is_claimed = True
        return taken

    def clear(self) -> list[Held]:
        """All that waits, to be given back."""
        waiting, self.waiting = self.waiting, []
        return waiting


class Groups:
    """The groups of one channel."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, held: Held) -> Group:
        """Put a message into its group; returns that."""
        key = held.message.note.key
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        group.add(held)
        return group

    def freed(self, group: Group, kept: Iterable[Held] = ()) -> bool:
        """A claim has been settled, and `kept` is left of it, not begun. Whether there is something to hand out."""
        group.is_claimed = False
        for held in kept:
            group.add(held)
        return self.tidy(group)

    def tidy(self, group: Group) -> bool:
        """Forget a group of which nothing is left. Whether there is something to hand out."""
        if not group.is_claimed and not group.waiting:
            self._groups.pop(group.key, None)
        return bool(group.waiting) and not group.is_claimed


def _sequence(held: Held) -> int:
    return held.message.sequence
