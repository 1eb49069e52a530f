"""Changes a queue's shard count, a step at a time. Each step is one transaction.

The progress is stored in the queue's row, so that any process can take the next step: if we die here, the next call
resumes it.
"""

from __future__ import annotations

from ...broker import ReshardProgress
from ...errors import ConfigError
from ...jobs.shards import shard_of
from ..shared import check_shards
from .database import Transaction
from .queues import QueueRow, to_json
from .store import Store

_PHASES = (("reshard_jobs", "reshard_move_jobs"), ("reshard_dead", "reshard_move_dead"))


class SQLiteShards:
    """The shards tier."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        check_shards(queue, shards)
        store = self._store
        store.queue(queue)
        with store.db.write() as tx:
            known = store.read_queues_in(tx)[queue]  # read again: another process may be taking steps too
            progress = step(tx, known, shards, max(limit, 1))
        store.read_queues()
        if progress.done:
            store.waiting.wake()
        return progress


def step(tx: Transaction, queue: QueueRow, shards: int, limit: int) -> ReshardProgress:
    """Begin, continue or finish the change, by at most `limit` jobs."""
    values = {"queue": queue.id, "shards": shards}
    if not queue.target:
        if queue.shards == shards:
            return ReshardProgress(total=0, moved=0, running=0, done=True)
        tx.run("reshard_begin", **values)
        tx.run("next_epoch")
    elif queue.target != shards:
        raise ConfigError(
            f"The queue {queue.name} is being resharded to {queue.target}; finish that first, with laneway reshard "
            f"{queue.name} {queue.target}."
        )
    phase, place, _, _ = tx.one("reshard_state", **values)
    while phase < len(_PHASES) and limit > 0:
        phase, place, moved = _move(tx, queue.id, shards, phase, place, limit)
        tx.run("reshard_place", queue=queue.id, phase=phase, place=place, moved=moved)
        limit -= moved
    phase, _, total, moved = tx.one("reshard_state", **values)
    running: int = tx.value("count_running", **values)
    done = phase == len(_PHASES) and not running
    if done:
        tx.run("reshard_end", **values)
        tx.run("next_epoch")
    # Jobs that were enqueued in the meantime are counted when they are reached. Until the end is reached, the total is
    # at least one more than what was moved.
    return ReshardProgress(total=max(total, moved + (phase < len(_PHASES))), moved=moved, running=running, done=done)


def _move(tx: Transaction, queue: int, shards: int, phase: int, place: str, limit: int) -> tuple[int, str, int]:
    """Move the next jobs. Returns the phase and place to continue from, and how many jobs were looked at."""
    look, move = _PHASES[phase]
    rows = tx.all(look, queue=queue, place=place, limit=limit)
    astray = [(id, shard) for id, key, old in rows if (shard := shard_of(key, shards)) != old]
    if astray:
        tx.run(move, rows=to_json(astray))
    if len(rows) < limit:
        return phase + 1, "", len(rows)
    return phase, rows[-1][1], len(rows)
