"""Layouts: caches the shards of each queue, and refreshes them when they prove stale.

Another process may reshard a queue, so the cache may be outdated. Scripts refuse to touch a shard that is not open.
The caller then gets a StaleLayoutError and reads the layout again (`Layouts.attempt`, `Layouts.refresh`). A refresh
also opens shards that a dead process left unopened, and finishes the transfer of keys that it left under way. If the
server was emptied, a refresh declares the queue again with the same shard count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...errors import BrokerError, BrokerRefusedError
from ...jobs.shards import shard_of
from ..shared import unknown_queue
from . import transfer
from .client.errors import StaleLayoutError, ensure_current
from .client.server import RedisClient
from .keys import Keys
from .script import load

_T = TypeVar("_T")

#: How often a call is tried when another process pauses or reshards the queue in the meantime.
TRIES = 20


class QueueRecord(msgspec.Struct, array_like=True):
    """The stored record of a queue."""

    shards: int
    epoch: int
    #: The new shard count while the queue is being resharded; else 0.
    resharding: int = 0
    paused: bool = False
    #: How many jobs there were to move when the resharding began, graves included; -1 until they are counted.
    to_move: int = 0
    #: How many of those have been moved.
    moved: int = 0
    #: How many shards of the previous epoch may still be open.
    closing: int = 0
    #: The counts of the shards of former epochs.
    processed: int = 0
    failed: int = 0


_read_record = msgspec.msgpack.Decoder(QueueRecord).decode


class Layout:
    """A queue's shards as tags. A tag is the common prefix of a shard's Redis keys."""

    def __init__(self, keys: Keys, queue: str, record: QueueRecord) -> None:
        self.keys = keys
        self.queue = queue
        self.record = record
        self.shards = record.shards
        self.epoch = record.epoch
        self.tags = [keys.tag(queue, record.epoch, shard) for shard in range(record.shards)]

    @cached_property
    def next_tags(self) -> list[str]:
        """The tags of the new shards while the queue is being resharded; else none."""
        return [self.keys.tag(self.queue, self.epoch + 1, shard) for shard in range(self.record.resharding)]

    @property
    def all_tags(self) -> list[str]:
        return self.tags + self.next_tags

    def tags_of_key(self, key: str) -> list[str]:
        """The shards where a key may be, in the order to ask them: a key stays in its old shard until it is moved."""
        homes = [self.tags[shard_of(key, self.shards)]]
        if self.record.resharding:
            homes.append(self.next_tag_of_key(key))
        return homes

    def next_tag_of_key(self, key: str) -> str:
        """The shard of a key after the queue has been resharded."""
        return self.next_tags[shard_of(key, self.record.resharding)]

    def shard(self, tag: str) -> int:
        return int(tag[tag.rindex(":") + 1 : -1])


class Layouts:
    """The layouts of all queues, cached until they prove outdated."""

    def __init__(self, server: RedisClient, keys: Keys, clock: Clock | None) -> None:
        self.server = server
        self.keys = keys
        self.clock = clock
        self._known: dict[str, Layout] = {}

    def args(self, **args: object) -> bytes:
        """Encoded arguments of a script. With a clock, as in tests, they include the time."""
        if self.clock is not None:
            args.setdefault("now", self.clock.now())
        return msgspec.msgpack.encode(args)

    def declare(self, queue: str, shards: int) -> Layout:
        """Create a queue if it does not exist."""
        known = self._known.get(queue)
        if known is not None:
            return known
        stored = self.server.run(load("declare"), [self.keys.queues], [self.args(queue=queue, shards=shards)])
        return self.remember(queue, stored)

    def get(self, queue: str) -> Layout:
        """The layout of an existing queue; raises BrokerError if there is no such queue."""
        known = self._known.get(queue)
        if known is not None:
            return known
        stored = self.server.do("HGET", self.keys.queues, queue)
        if stored is None:
            raise unknown_queue(queue)
        return self.remember(queue, stored)

    def known(self, queues: Collection[str]) -> list[Layout]:
        """The layouts of those of the queues that exist."""
        unknown = [queue for queue in queues if queue not in self._known]
        if unknown:
            for queue, stored in zip(unknown, self.server.do("HMGET", self.keys.queues, *unknown), strict=True):
                if stored is not None:
                    self.remember(queue, stored)
        return [layout for queue in queues if (layout := self._known.get(queue)) is not None]

    def read_all(self) -> list[Layout]:
        """The layouts of all queues, sorted by name, as they are stored now."""
        stored = self.server.do("HGETALL", self.keys.queues)
        records = {stored[i].decode(): stored[i + 1] for i in range(0, len(stored), 2)}
        self._known = {}
        return [self.remember(queue, records[queue]) for queue in sorted(records)]

    def forget(self, queue: str) -> None:
        """Drop a queue from the cache, so that it is read again when it is next needed."""
        self._known.pop(queue, None)

    def remember(self, queue: str, stored: bytes) -> Layout:
        """Cache a queue's record as it was just read."""
        layout = self._known[queue] = Layout(self.keys, queue, _read_record(stored))
        return layout

    def open(self, layout: Layout, *, tell: bool = False) -> None:
        """Open the shards of a queue that no process has opened, or that a process left unopened when it died.

        With `tell`, it also tells shards that are open already whether the queue is paused.
        """
        args = [self.args(paused=layout.record.paused, tell=tell)]
        self.server.run_all([(load("open"), [tag], args) for tag in layout.all_tags])

    def together(self, tags: Iterable[str]) -> list[list[str]]:
        """Groups of tags that one script may touch at once: all tags, or on a Cluster each tag alone."""
        names = list(tags)
        if self.server.is_cluster:
            return [[name] for name in names]
        return [names] if names else []

    def attempt(self, queue: str, step: Callable[[Layout], _T]) -> _T:
        """What `step` returns for the layout of an existing queue. Repeats `step` if the layout was outdated."""
        for _ in range(TRIES):
            layout = self.get(queue)
            try:
                return step(layout)
            except StaleLayoutError:
                self.refresh(layout)
        raise outdated(queue)

    def refresh(self, layout: Layout) -> None:
        """Read a layout again that proved outdated, and open shards that are not open.

        If the queue is gone, because the server was emptied, it is created again with the same shard count.

        If the layout was not outdated, the key that was asked for is on its way from one shard to another. The process
        that was moving it may have died, so this finishes the move.
        """
        self.forget(layout.queue)
        found = self.declare(layout.queue, layout.shards)
        self.open(found)
        if found.record.resharding and (found.epoch, found.next_tags) == (layout.epoch, layout.next_tags):
            on_their_way = self.server.do_all([("EXISTS", f"{tag}:leaving") for tag in found.tags])
            for tag, is_left in zip(found.tags, on_their_way, strict=True):
                if is_left:
                    with suppress(StaleLayoutError):  # another process has finished the resharding
                        transfer.transfer_keys(self, tag, found.next_tag_of_key, leaving_only=True)

    def ask(self, script: str, tag: str, **args: object) -> list[Any]:
        """A script's answer about one shard."""
        answer: list[Any] = self.server.run(load(script), [tag], [self.args(**args)])
        return ensure_current(answer)


def outdated(queue: str) -> BrokerError:
    return BrokerRefusedError(
        f"The shards of the queue {queue} keep changing; let `laneway reshard` finish, then try this again."
    )
