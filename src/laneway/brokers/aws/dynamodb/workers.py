"""WorkerRows: workers, queues (counters and pauses) and locks: rows under `laneway` and `laneway-workers`.

SQS knows neither workers nor counters nor pauses, so they are stored here. None of these rows has a `perform_at`.
Apart from `heartbeat`: the table builds on these rows, and `heartbeat` looks up the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from ....jobs.data import WorkerView
from ...shared import REMEMBER_DEAD_S
from .client import Item, TableClient, attribute, key, number, real, text, value

_WORKERS = "laneway-workers"
#: A worker that has not been heard of for so long, or for its lease if that is longer, is dead.
SILENCE_S = 35.0

_read_view = msgspec.json.Decoder(WorkerView)


class QueueItem(msgspec.Struct, frozen=True):
    """What is known of a queue."""

    paused: bool = False
    processed: int = 0
    failed: int = 0


class WorkerRows(TableClient):
    """The rows of a table that are about queues and workers."""

    # -- locks -----------------------------------------------------------------------------------------

    def hold(self, lock: str, mine: str, now: float, seconds: float) -> bool:
        """Have a lock, or go on having it. False: it is somebody else's. May be repeated."""
        held = self.write_if(
            "update_item",
            "attribute_not_exists(#claim) OR #until < :now OR #claim = :mine",
            Key=key("laneway", f"lock:{lock}"),
            UpdateExpression="SET #claim = :mine, #until = :until",
            ExpressionAttributeNames={"#claim": "claim", "#until": "claim_until"},
            ExpressionAttributeValues={":mine": {"S": mine}, ":now": number(now), ":until": number(now + seconds)},
        )
        return held is not None

    def release_lock(self, lock: str, mine: str) -> None:
        """Leave a lock to others."""
        self.write_if(
            "delete_item",
            "#claim = :mine",
            Key=key("laneway", f"lock:{lock}"),
            ExpressionAttributeNames={"#claim": "claim"},
            ExpressionAttributeValues={":mine": {"S": mine}},
        )

    # -- workers ---------------------------------------------------------------------------------------

    def save_worker(self, view: WorkerView, seen_at: float, running: Collection[str] = ()) -> None:
        """Keep what is known of a worker, heard of just now, and the ids of what it runs, if those are wanted."""
        item = {
            **key(_WORKERS, view.id),
            "view": {"S": msgspec.json.encode(view).decode()},
            "seen_at": number(seen_at),
            "expires_at": number(int(seen_at + REMEMBER_DEAD_S)),
            **({"running": attribute(running)} if running else {}),
        }
        self.call("put_item", Item=item)

    def forget_worker(self, id: str) -> None:
        self.call("delete_item", Key=key(_WORKERS, id))

    def workers(self) -> list[WorkerView]:
        """Every worker that was heard of in the last hour, by id; whoever has been silent for long is dead."""
        now = self.clock.now()
        views = [_view_of(item, now) for item in self._worker_items()]
        return [view for view in views if now - view.seen_at < REMEMBER_DEAD_S]

    def running(self) -> Iterator[str]:
        """The ids of what living workers run, as far as they tell."""
        now = self.clock.now()
        for item in self._worker_items():
            if "running" in item and not _view_of(item, now).dead:
                yield from value(item["running"])

    def _worker_items(self) -> Iterator[Item]:
        for answer in self.query(
            KeyConditionExpression="#scheduler = :workers",
            ExpressionAttributeNames={"#scheduler": "scheduler"},
            ExpressionAttributeValues={":workers": {"S": _WORKERS}},
            ConsistentRead=True,
        ):
            yield from answer["Items"]

    # -- queues ----------------------------------------------------------------------------------------

    def queue_item(self, queue: str) -> QueueItem:
        return self.queue_items([queue])[queue]

    def queue_items(self, queues: Collection[str]) -> dict[str, QueueItem]:
        """What is known of queues; of one that nobody has written of, nothing has happened."""
        found = {queue: QueueItem() for queue in queues}
        for item in self.items([_queue_key(queue) for queue in found]):
            found[text(item, "job_id").removeprefix("queue:")] = QueueItem(
                paused=item.get("paused", {}).get("BOOL", False),
                processed=int(real(item, "processed")),
                failed=int(real(item, "failed")),
            )
        return found

    def queues(self) -> list[str]:
        """The queues of which something is known."""
        return [
            text(item, "job_id").removeprefix("queue:")
            for answer in self.query(
                KeyConditionExpression="#scheduler = :laneway AND begins_with(#id, :queue)",
                ExpressionAttributeNames={"#scheduler": "scheduler", "#id": "job_id"},
                ExpressionAttributeValues={":laneway": {"S": "laneway"}, ":queue": {"S": "queue:"}},
                ConsistentRead=True,
            )
            for item in answer["Items"]
        ]

    def count_runs(self, queue: str, processed: int, failed: int) -> None:
        """Add to a queue's counters. They may count twice what was counted when an answer was lost."""
        self.call(
            "update_item",
            Key=_queue_key(queue),
            UpdateExpression="ADD #processed :processed, #failed :failed",
            ExpressionAttributeNames={"#processed": "processed", "#failed": "failed"},
            ExpressionAttributeValues={":processed": number(processed), ":failed": number(failed)},
        )

    def set_paused(self, queue: str, paused: bool) -> bool:
        """Pause or resume a queue. False: it was so already."""
        was_not = "#paused = :not" + (" OR attribute_not_exists(#paused)" if paused else "")
        written = self.write_if(
            "update_item",
            was_not,
            Key=_queue_key(queue),
            UpdateExpression="SET #paused = :paused",
            ExpressionAttributeNames={"#paused": "paused"},
            ExpressionAttributeValues={":paused": {"BOOL": paused}, ":not": {"BOOL": not paused}},
        )
        return written is not None


def _queue_key(queue: str) -> Item:
    return key("laneway", f"queue:{queue}")


def _view_of(item: Item, now: float) -> WorkerView:
    view = _read_view.decode(text(item, "view"))
    view.seen_at = real(item, "seen_at")
    view.dead = now - view.seen_at > max(SILENCE_S, view.lease_s)
    return view
