"""The verb `reshard`: changes a queue's shard count while the queue is in use, a step at a time.

The shards of two epochs never share a Redis key. First the queue's record notes the change. Then the new shards are
opened and the old shards marked: nothing is claimed from them, and they accept no new key. Keys move in batches
(`transfer`); a running key moves after it is settled. When the old shards are empty, the record notes it, and they
are closed. Any process may repeat all of this from the beginning: the next step does again whatever a process that
died may have left undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from ...broker import ReshardProgress
from ...errors import ConfigError
from ..shared import check_shards, unknown_queue
from . import transfer
from .client.errors import StaleLayoutError, ensure_current
from .layout import TRIES, Layout, Layouts, outdated
from .script import load
from .wakeup import wake

#: How many marks of a shard are moved at a time, and how often in one step at most.
_MARKS, _PAGES = 1_000, 10
#: The longest time for which a shard remembers deliveries; see `note_delivered` in scripts/enqueue.lua.
_DELIVERED_S = 604_800
_read_turn, _write_turn = msgspec.msgpack.Decoder(list[Any]).decode, msgspec.msgpack.Encoder().encode
_NOTHING = ReshardProgress(total=0, moved=0, running=0, done=True)


class RedisShards:
    """The shards tier."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        check_shards(queue, shards)
        for _ in range(TRIES):
            layout = _begin(self._layouts, queue, shards)
            if not layout.record.resharding:
                return _NOTHING
            if layout.record.resharding != shards:
                raise ConfigError(
                    f"The queue {queue} is being changed to {layout.record.resharding} shards; finish that first, "
                    f"with `laneway reshard {queue} {layout.record.resharding}`."
                )
            try:
                if layout.record.to_move < 0:
                    _prepare(self._layouts, layout)
                return _step(self._layouts, layout, limit)
            except StaleLayoutError:  # another process has finished it, or a shard has never been opened
                self._layouts.refresh(layout)
        raise outdated(queue)


def _begin(layouts: Layouts, queue: str, shards: int) -> Layout:
    while True:
        args = [layouts.args(queue=queue, shards=shards)]
        stored = layouts.server.run(load("reshard_begin"), [layouts.keys.queues], args)
        if stored is None:
            raise unknown_queue(queue)
        layout = layouts.remember(queue, stored)
        if not layout.record.closing:
            return layout
        close(layouts, layout)


def _prepare(layouts: Layouts, layout: Layout) -> None:
    """Open the new shards, mark the old ones as being left, and count the jobs in them."""
    layouts.open(layout)
    args = [layouts.args(shards=layout.record.resharding)]
    counts = layouts.server.run_all([(load("reshard_mark"), [tag], args) for tag in layout.tags])
    _note(layouts, layout, to_move=sum(ensure_current(count)[1] for count in counts))
    wake(layouts, layout.queue)


def _note(layouts: Layouts, layout: Layout, **what: object) -> tuple[int, int]:
    args = layouts.args(queue=layout.queue, epoch=layout.epoch, **what)
    noted = layouts.server.run(load("reshard_note"), [layouts.keys.queues], [args])
    if noted is None:
        raise StaleLayoutError
    return noted[0], noted[1]


def _step(layouts: Layouts, layout: Layout, limit: int) -> ReshardProgress:
    left = max(limit, 1)
    for tag, (there, _, _) in zip(layout.tags, _look(layouts, layout), strict=True):
        while there > 0 and left > 0 and (count := transfer.transfer_keys(layouts, tag, layout.next_tag_of_key, left)):
            left -= count
    counts = _look(layouts, layout)
    total, moved = _note(layouts, layout, left=sum(there for there, _, _ in counts))
    running = sum(claims for _, claims, _ in counts)
    if not all(is_empty for _, _, is_empty in counts) or not _move_marks(layouts, layout):
        return ReshardProgress(total, moved, running, done=False)
    _finish(layouts, layout)
    return ReshardProgress(total, total, 0, done=True)


def _look(layouts: Layouts, layout: Layout) -> list[tuple[int, int, bool]]:
    """For each old shard: how many jobs are still to be moved, how many run, and whether the shard is empty."""
    args = [layouts.args()]
    answers = layouts.server.run_all([(load("reshard_look"), [tag], args) for tag in layout.tags])
    return [(there, claims, bool(is_empty)) for _, there, claims, is_empty in map(ensure_current, answers)]


def _move_marks(layouts: Layouts, layout: Layout) -> bool:
    """Move the marks of cancelled jobs and of deliveries. False: there are more than one step should move."""
    cancelled = _move_index(layouts, layout, ":cancelled", None, _cancelled_key)
    return cancelled and _move_index(layouts, layout, ":delivered", _DELIVERED_S, _delivered_key)


def _cancelled_key(mark: bytes) -> bytes:
    return mark.rpartition(b"\0")[0] if mark.endswith(b"\0") else mark.partition(b"\0")[0]


def _delivered_key(mark: bytes) -> bytes:
    return mark.partition(b"\0")[2]


def _move_index(
    layouts: Layouts, layout: Layout, index: str, ttl: int | None, key_of: Callable[[bytes], bytes]
) -> bool:
    server = layouts.server
    for _ in range(_PAGES):
        found = server.do_all(
            [("ZRANGE", f"{tag}{index}", 0, _MARKS - 1, "WITHSCORES") for tag in layout.tags],
        )
        if not any(found):
            return True
        marks: dict[str, list[Any]] = {}
        pairs = list(chain.from_iterable(found))
        for mark, when in zip(pairs[::2], pairs[1::2], strict=True):
            marks.setdefault(layout.next_tag_of_key(key_of(mark).decode()), []).extend((when, mark))
        args = layouts.args(index=index, ttl=ttl)
        server.run_all([(load("reshard_marks"), [tag], [args, *there]) for tag, there in marks.items()])
        server.do_all(
            [("ZREM", f"{tag}{index}", *page[::2]) for tag, page in zip(layout.tags, found, strict=True) if page]
        )
    return False


def _finish(layouts: Layouts, layout: Layout) -> None:
    """End the resharding. The old shards are empty, and nothing can come into them."""
    server = layouts.server
    states = [_pairs(found) for found in server.do_all([("HGETALL", f"{tag}:meta") for tag in layout.tags])]
    if any(b"open" not in state for state in states):
        raise StaleLayoutError
    args = layouts.args(
        sources=[f"{layout.epoch}:{shard}" for shard in range(layout.shards)],
        seq=max(int(state.get(b"seq", 0)) for state in states),
        token=max(int(state.get(b"token", 0)) for state in states),
    )
    turns = _last_turns(states, server.is_cluster)
    settled = server.run_all([(load("reshard_settle"), [tag], [args, *turns]) for tag in layout.next_tags])
    for answer in settled:
        ensure_current(answer)
    args = layouts.args(
        queue=layout.queue,
        epoch=layout.epoch,
        processed=sum(int(state.get(b"processed", 0)) for state in states),
        failed=sum(int(state.get(b"failed", 0)) for state in states),
    )
    server.run(load("reshard_end"), [layouts.keys.queues], [args])
    layouts.forget(layout.queue)
    # If we die here, the next process that reshards or repairs the queue closes the old shards.
    close(layouts, layouts.get(layout.queue))
    wake(layouts, layout.queue)


def _last_turns(states: Sequence[Mapping[bytes, bytes]], is_cluster: bool) -> list[bytes]:
    """Each worker, and the last of its turns that the old shards remember.

    If the worker repeats that turn, the new shards must give the same answer. A later turn claims nothing any more, and
    is recorded in the new shards when it is taken.
    """
    last: dict[bytes, tuple[int, bool, bytes]] = {}
    for state in states:
        for name, stored in state.items():
            if name.startswith(b"t:"):
                seq, token, _, *claimed = _read_turn(stored)
                if is_cluster:  # the shard that refused a settlement remembers that, even after it is closed
                    stored = _write_turn((seq, token, (), *claimed))
                turn = seq, any(claimed), stored
                last[name[2:]] = max(turn, last.get(name[2:], turn))
    return [part for worker, (_, _, turn) in last.items() for part in (worker, turn)]


def close(layouts: Layouts, layout: Layout) -> bool:
    """Close the shards of the previous epoch, unless they are closed. False: one of them is not empty."""
    if not layout.record.closing:
        return True
    old = [layouts.keys.tag(layout.queue, layout.epoch - 1, shard) for shard in range(layout.record.closing)]
    if not all(layouts.server.run_all([(load("reshard_close"), [tag], [layouts.args()]) for tag in old])):
        return False
    args = [layouts.args(queue=layout.queue, epoch=layout.epoch)]
    layouts.server.run(load("reshard_closed"), [layouts.keys.queues], args)
    layouts.forget(layout.queue)
    return True


def _pairs(found: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(found[::2], found[1::2], strict=True))
