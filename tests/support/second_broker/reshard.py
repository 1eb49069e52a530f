"""Changes a queue's shard count, and repairs jobs in a wrong shard. The caller holds the broker's lock."""

from __future__ import annotations

from collections import deque
from itertools import chain

from laneway.broker import Finding, ReshardProgress
from laneway.brokers.shared import being_resharded, check_shards, mendable
from laneway.errors import ConfigError

from .job import MemoryJob
from .queue import MemoryQueue


def move(queue: MemoryQueue, job: MemoryJob) -> None:
    """Put a job into the shard where it belongs; one that runs gets there when it is settled."""
    job.shard = queue.shard_of(job.key)
    if job.slot is not None:
        queue.lanes.put(job)


def reshard(queue: MemoryQueue, shards: int, limit: int) -> ReshardProgress:
    """Begin, or go on, or finish."""
    check_shards(queue.name, shards)
    if not queue.resharding:
        if shards == queue.shards:
            return ReshardProgress(total=0, moved=0, running=0, done=True)
        queue.resharding = shards
        # What comes from now on goes into the new shards, so this is all that has to be moved.
        queue.unmoved = deque(chain(queue.by_key.values(), queue.morgue.values()))
        queue.to_move = len(queue.unmoved)
    elif queue.resharding != shards:
        raise ConfigError(
            f"The queue {queue.name} is being changed to {queue.resharding} shards; finish that first, "
            f"with `laneway reshard {queue.name} {queue.resharding}`."
        )
    for _ in range(min(max(limit, 1), len(queue.unmoved))):
        move(queue, queue.unmoved.popleft())
    running = sum(job.worker is not None for job in queue.by_key.values())
    done = not queue.unmoved and not running
    if done:
        queue.shards, queue.resharding = shards, 0
        queue.epoch += 1
        queue.lanes.keep_shards(shards)
    return ReshardProgress(total=queue.to_move, moved=queue.to_move - len(queue.unmoved), running=running, done=done)


def problems(queue: MemoryQueue) -> list[Finding]:
    """What is wrong with the shards of a queue, or worth knowing."""
    if queue.resharding:
        moved = queue.to_move - len(queue.unmoved)
        return [being_resharded(queue.name, queue.shards, queue.resharding, queue.to_move, moved)]
    lost = len(_in_wrong_shard(queue))
    return [mendable("wrong-shard", lost, "Jobs in the wrong shard")] if lost else []


def repair(queue: MemoryQueue) -> list[str]:
    """Put what is in a wrong shard into the right one."""
    astray = [] if queue.resharding else _in_wrong_shard(queue)
    for job in astray:
        move(queue, job)
    return [f"Keys of the queue {queue.name} put into their own shard: {len(astray)}."] if astray else []


def _in_wrong_shard(queue: MemoryQueue) -> list[MemoryJob]:
    return [job for job in chain(queue.by_key.values(), queue.morgue.values()) if job.shard != queue.shard_of(job.key)]
