"""The order and time in which messages can be received; standard and FIFO queues differ only here.

A line only orders messages. The queue decides whether a message is delivered (`deliver`) and until when it is
hidden then. All lines use heaps, so that a receive costs no more on a long queue than on a short one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, islice

from tests.support.aws.fake.faults import Faults
from tests.support.aws.fake.messages import Message

#: How many messages may overtake one that is out of order.
_OVERTAKING = 30
#: How far into a group a receive looks.
_DEPTH = 64

#: Whether the message is delivered (else it is no longer in the queue); the second is whether it was delivered before
#: and this is the same delivery once more.
Deliver = Callable[[Message, bool], bool]


class StandardLine:
    """About first come, first served; as far from that as `faults` say."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._numbers = count()
        self._hidden: list[tuple[float, int, int, Message]] = []
        self._ready: list[tuple[float, int, int, Message]] = []
        #: What is to be delivered a second time.
        self._echoes: deque[Message] = deque()

    def place(self, message: Message, now: float) -> None:
        """Put a message where it belongs, after it came or after the time changed at which it is visible."""
        message.version += 1
        number = next(self._numbers)
        if message.visible_at > now:
            heappush(self._hidden, (message.visible_at, number, message.version, message))
            return
        order = float(number)
        if self._faults.happens(self._faults.reordered):
            self._faults.overtaken += 1
            order += self._faults.chance.uniform(1, _OVERTAKING)
        heappush(self._ready, (order, number, message.version, message))

    def receive(self, now: float, most: int, deliver: Deliver) -> None:
        """Deliver up to `most` messages that are visible."""
        taken: list[Message] = []
        while self._echoes and len(taken) < most:
            message = self._echoes.popleft()
            if deliver(message, True):
                self._faults.duplicated += 1
                taken.append(message)
        again = len(taken)
        while self._hidden and self._hidden[0][0] <= now:
            _, _, version, message = heappop(self._hidden)
            if message.stored and message.version == version:
                self.place(message, now)
        while self._ready and len(taken) < most:
            _, _, version, message = heappop(self._ready)
            if message.stored and message.version == version and message not in taken and deliver(message, False):
                taken.append(message)
        for number, message in enumerate(taken):
            self.place(message, now)
            if number >= again and self._faults.happens(self._faults.duplicates):
                self._echoes.append(message)

    def removed(self, message: Message) -> None:
        """It is in the heaps until they come across it."""

    def next_at(self, now: float) -> float | None:
        """When there may be something to receive, if nobody does anything before."""
        while self._ready and not self._valid(self._ready[0]):
            heappop(self._ready)
        while self._hidden and not self._valid(self._hidden[0]):
            heappop(self._hidden)
        if self._ready or self._echoes:
            return now
        return self._hidden[0][0] if self._hidden else None

    def _valid(self, entry: tuple[float, int, int, Message]) -> bool:
        return entry[3].stored and entry[3].version == entry[2]


class _Group:
    __slots__ = ("hidden", "messages", "name", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: deque[Message] = deque()
        #: Those in flight: while there is one, nothing of the group is handed out.
        self.hidden: set[Message] = set()
        #: Counts what happens to it: entries of the heap that speak of an older one are void.
        self.version = 0


class FifoLine:
    """Group by group, each in the order of arrival, and none of which something is in flight."""

    def __init__(self) -> None:
        self._numbers = count()
        self._groups: dict[str, _Group] = {}
        self._heap: list[tuple[float, int, int, _Group]] = []

    def place(self, message: Message, now: float) -> None:
        assert message.group is not None
        if message.version == 0:  # it has just come
            message.version = 1
            group = self._groups.get(message.group)
            if group is None:
                group = self._groups[message.group] = _Group(message.group)
            group.messages.append(message)
            if group.messages[0] is message:
                self._schedule(group)
            return
        group = self._groups[message.group]
        self._hide(group, message, now)
        self._schedule(group)

    def receive(self, now: float, most: int, deliver: Deliver) -> None:
        """Deliver up to `most` messages: as many of one group as there are, then of the next."""
        touched: list[_Group] = []
        while self._heap and self._heap[0][0] <= now and most > 0:
            _, _, version, group = heappop(self._heap)
            if group.version != version:
                continue
            touched.append(group)
            group.hidden.clear()
            for message in islice(group.messages, _DEPTH):
                if message.stored and message.visible_at > now:
                    break  # it is delayed, and so are those behind it
                if message.stored and deliver(message, False):
                    self._hide(group, message, now)
                    most -= 1
                    if most == 0:
                        break
        for group in touched:
            self._schedule(group)

    def removed(self, message: Message) -> None:
        assert message.group is not None
        group = self._groups[message.group]
        group.hidden.discard(message)
        self._schedule(group)

    def next_at(self, now: float) -> float | None:
        while self._heap and self._heap[0][3].version != self._heap[0][2]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _hide(self, group: _Group, message: Message, now: float) -> None:
        if message.visible_at > now:
            group.hidden.add(message)
        else:
            group.hidden.discard(message)

    def _schedule(self, group: _Group) -> None:
        """Say when the group can be received from: when none of it is in flight, and its first message is due."""
        while group.messages and not group.messages[0].stored:
            group.messages.popleft()
        group.version += 1
        if not group.messages:
            self._groups.pop(group.name, None)
            return
        at = max([group.messages[0].visible_at, *(message.visible_at for message in group.hidden)])
        heappush(self._heap, (at, next(self._numbers), group.version, group))
