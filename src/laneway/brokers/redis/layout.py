"""Layouts: the shards of each queue, cached until a script reports that they are outdated.

Another process may reshard a queue, so the cache may be outdated. A client names the shards of new jobs, and the layout
by which it chose them. If that is not the queue's layout, the script does nothing and replies `stale`. The caller then
gets a StaleLayoutError and reads the layout again (`Layouts.attempt`, `Layouts.refresh`). Reading changes nothing,
except that a queue which is gone, because the server was emptied, is declared again with the same shard count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...errors import BrokerError, BrokerRefusedError
from ..shared import unknown_queue
from .client.errors import StaleLayoutError, ensure_current
from .client.server import Call, RedisClient
from .keys import Keys
from .script import load

_T = TypeVar("_T")

#: How often a call is tried when another process reshards the queue in the meantime.
TRIES = 20

_FIELDS = ("layout", "next", "to_move", "moved")


class Layout:
    """The shards of a queue, as its `:meta` names them."""

    __slots__ = ("epoch", "moved", "name", "newest", "queue", "resharding", "root", "shards", "to_move")

    def __init__(self, queue: str, root: str, stored: Sequence[bytes | None]) -> None:
        self.queue = queue
        self.root = root
        name, following, to_move, moved = stored
        assert name is not None
        self.name = name.decode()
        epoch, shards = self.name.split("/")
        self.epoch, self.shards = int(epoch), int(shards)
        #: The name of the layout that new jobs go into: while the queue is being resharded, the next one.
        self.newest = self.name if following is None else following.decode()
        #: The new shard count while the queue is being resharded; else 0.
        self.resharding = 0 if following is None else int(self.newest.split("/")[1])
        #: How many jobs there were to move when the resharding began, and how many have been moved.
        self.to_move, self.moved = int(to_move or 0), int(moved or 0)

    @property
    def newest_shards(self) -> int:
        """How many shards new jobs are spread over."""
        return self.resharding or self.shards


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
        """The layout of a queue. Creates the queue if it does not exist."""
        found = self._known.get(queue) or self._read([queue])[0]
        if found is None:
            self.server.run(load("name"), [self.keys.queues], [self.args(queue=queue)])
            stored = self.server.run(load("declare"), [self.keys.root(queue)], [self.args(shards=shards)])
            found = self._known[queue] = Layout(queue, self.keys.root(queue), stored)
        return found

    def get(self, queue: str) -> Layout:
        """The layout of an existing queue; raises NoQueueError if there is no such queue."""
        found = self._known.get(queue) or self._read([queue])[0]
        if found is None:
            raise unknown_queue(queue)
        return found

    def known(self, queues: Collection[str]) -> list[Layout]:
        """The layouts of those of the queues that exist."""
        self._read([queue for queue in queues if queue not in self._known])
        return [layout for queue in queues if (layout := self._known.get(queue)) is not None]

    def read_all(self) -> list[Layout]:
        """The layouts of all queues, sorted by name, as they are stored now."""
        names = sorted(name.decode() for name in self.server.do("SMEMBERS", self.keys.queues))
        self._known = {}
        return [layout for layout in self._read(names) if layout is not None]

    def _read(self, queues: Sequence[str]) -> list[Layout | None]:
        roots = [self.keys.root(queue) for queue in queues]
        rows = self.server.do_all([("HMGET", f"{root}:meta", *_FIELDS) for root in roots])
        found = [Layout(*each) if each[2][0] else None for each in zip(queues, roots, rows, strict=True)]
        self._known |= {layout.queue: layout for layout in found if layout is not None}
        return found

    def forget(self, queue: str) -> None:
        """Drop a queue from the cache, so that it is read again when it is next needed."""
        self._known.pop(queue, None)

    def refresh(self, layout: Layout) -> None:
        """Read a layout again that proved outdated."""
        self.forget(layout.queue)
        self.declare(layout.queue, layout.shards)

    def attempt(self, queue: str, step: Callable[[Layout], _T]) -> _T:
        """What `step` returns for the layout of an existing queue. Repeats `step` if the layout was outdated."""
        for _ in range(TRIES):
            layout = self.get(queue)
            try:
                return step(layout)
            except StaleLayoutError:
                self.refresh(layout)
        raise outdated(queue)

    def ask(self, script: str, queue: str, *texts: bytes, **args: object) -> list[Any]:
        """A script's answer about one queue. Raises NoQueueError if there is no such queue."""

        def step(layout: Layout) -> list[Any]:
            answer: list[Any] = self.server.run(load(script), [layout.root], [self.args(**args), *texts])
            return ensure_current(answer)

        return self.attempt(queue, step)

    def ask_all(self, script: str, layouts: Iterable[Layout], **args: object) -> list[Any]:
        """A script's answers about several queues, without a check whether they still exist."""
        packed = [self.args(**args)]
        return self.server.run_all([(load(script), [layout.root], packed) for layout in layouts])

    def together(self, script: str, layouts: Sequence[Layout], args: Callable[[list[Layout]], bytes]) -> list[Call]:
        """Calls of a script about many queues: one call for all of them, or on a Cluster one for each."""
        groups = [[layout] for layout in layouts] if self.server.is_cluster else [list(layouts)] if layouts else []
        return [(load(script), [layout.root for layout in group], [args(group)]) for group in groups]


def outdated(queue: str) -> BrokerError:
    return BrokerRefusedError(
        f"The shards of the queue {queue} keep changing; let `laneway reshard` finish, then try this again."
    )
