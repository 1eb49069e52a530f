"""Checks the SQLite file and repairs it. No payload is thrown away.

Payloads without a job go to the morgue of the queue `lost-and-found`. A subscription with an unreadable filter loses
the filter and gets every event until its listener's worker starts again: too many events are better than none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...broker import AutoCreateNote, Duty, Finding
from ...jobs.shards import DEFAULT_SHARDS, shard_of
from ..shared import CLAIMS_OF_THE_DEAD, being_resharded, mendable
from .database import Transaction
from .queues import queues, to_json
from .store import Store
from .turn import give_back

if TYPE_CHECKING:
    from ...app import Laneway

#: The queue whose morgue keeps payloads without a job.
LOST_AND_FOUND = "lost-and-found"
PAGE = 5_000

_read_ids = msgspec.json.Decoder(list[int]).decode


class SQLiteHealth:
    """The health tier."""

    auto_create = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def unmade(self) -> Finding | None:
        return self._store.db.unmade()

    def check(self, app: Laneway | None = None) -> list[Finding]:
        with self._store.db.read() as tx:
            return check(tx, self._store.db.place)

    def repair(self) -> list[str]:
        store = self._store
        with store.db.write() as tx:
            repaired = repair(tx, store.clock.now())
        store.read_queues()
        store.waiting.wake()
        return repaired

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        return ()

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        return ()


def check(tx: Transaction, place: str) -> list[Finding]:
    """The problems of the stored data."""
    found = [
        Finding("problem", "damaged", f"The database {place} is damaged: {line}.", place)
        for (line,) in tx.connection.execute("PRAGMA quick_check(5)").fetchall()
        if line != "ok"
    ]
    found += [being_resharded(*row) for row in tx.all("resharding")]
    if tx.value("dead_hold_claims"):
        found.append(CLAIMS_OF_THE_DEAD)
    counted = [
        ("lost-queues", len(tx.all("strays")), "Queues that are gone and have left jobs behind"),
        ("no-shards", tx.value("queues_without_shards"), "Queues without shards"),
        ("unknown-worker", tx.value("claims_without_worker"), "Jobs claimed by a worker that does not exist"),
        (
            "wrong-shard",
            sum(len(rows) for _, rows in _in_wrong_shard(tx)),
            "Jobs in the wrong shard, where no worker looks",
        ),
        ("mistimed", len(_ids(tx, "mistimed")), "Keyed jobs that are not due with their earliest call"),
        ("queued-and-running", len(_ids(tx, "queued_and_running")), "Jobs queued and running at once"),
        (
            "no-payload",
            len(_ids(tx, "jobs_without_payloads")) + len(_ids(tx, "dead_without_payloads")),
            "Jobs without any payload",
        ),
        ("no-job", len(_ids(tx, "orphans")), "Payloads without a job"),
        (
            "unreadable-filter",
            tx.value("unreadable_filters"),
            "Subscriptions whose filter cannot be read, so that no program can publish",
        ),
    ]
    return found + [mendable(code, number, what) for code, number, what in counted if number]


def repair(tx: Transaction, now: float) -> list[str]:
    """Repair what can be repaired. Returns one sentence for each kind of repair."""
    done = []
    strays = [queue for (queue,) in tx.all("strays")]
    for queue in strays:
        tx.run("make_stray", queue=queue, name=f"{LOST_AND_FOUND}-{queue}", shards=DEFAULT_SHARDS)
    done.append((len(strays), f"Queues that were gone, and are {LOST_AND_FOUND}-… now"))
    repaired = tx.run("repair_shards", shards=DEFAULT_SHARDS).rowcount
    done.append((repaired, f"Queues without shards that have {DEFAULT_SHARDS} now"))
    if strays or repaired:
        tx.run("next_epoch")
    claimed = tx.all("claims_of_the_dead")
    given_back = 0
    for (worker,) in claimed:
        ids = _read_ids(tx.value("claims_of", worker=worker))
        give_back(tx, ids, unstarted=False)
        given_back += len(ids)
    done.append((given_back, "Claims of dead workers given back"))
    moved = 0
    for statement, rows in _in_wrong_shard(tx):
        tx.run(statement, rows=to_json(rows))
        moved += len(rows)
    done.append((moved, "Jobs moved to the shard that they belong to"))
    queued_and_running = _ids(tx, "queued_and_running")
    give_back(tx, queued_and_running, unstarted=False)
    done.append((len(queued_and_running), "Jobs that were queued and running at once, and are queued now"))
    orphans = _ids(tx, "orphans")
    if orphans:
        tx.run("make_queue", name=LOST_AND_FOUND, shards=1)
        values = {
            "queue": queues(tx)[LOST_AND_FOUND].id,
            "ids": to_json(orphans),
            "now": now,
            "error": "Its job was gone; it was found by laneway check --repair.",
        }
        tx.run("bury_orphans", **values)
        tx.run("delete_payloads", **values)
    done.append((len(orphans), f"Payloads without a job put into the morgue of the queue {LOST_AND_FOUND}"))
    empty, empty_dead = _ids(tx, "jobs_without_payloads"), _ids(tx, "dead_without_payloads")
    for id in empty:
        tx.run("remove_job", id=id)
    for id in empty_dead:
        tx.run("delete_dead", id=id)
    done.append((len(empty) + len(empty_dead), "Jobs without any payload removed"))
    mistimed = _ids(tx, "mistimed")
    for id in mistimed:
        tx.run("due_again", id=id)
    done.append((len(mistimed), "Keyed jobs that are due with their earliest call now"))
    unfiltered = tx.run("drop_unreadable_filters").rowcount
    done.append((unfiltered, "Subscriptions without a filter now, until their listener's worker restarts"))
    return [f"{what}: {number}." for number, what in done if number]


def _in_wrong_shard(tx: Transaction) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Jobs in the wrong shard: the statement that moves them, and the id and right shard of each."""
    for queue in queues(tx).values():
        if queue.target or queue.shards < 1:
            continue  # the jobs are being moved, or the queue has no shards to move them to
        for look, move in (("reshard_jobs", "reshard_move_jobs"), ("reshard_dead", "reshard_move_dead")):
            place = ""
            while True:
                rows = tx.all(look, queue=queue.id, place=place, limit=PAGE)
                wrong = [(id, right) for id, key, shard in rows if (right := shard_of(key, queue.shards)) != shard]
                if wrong:
                    yield move, wrong
                if len(rows) < PAGE:
                    break
                place = rows[-1][1]


def _ids(tx: Transaction, statement: str) -> list[int]:
    return _read_ids(tx.value(statement))
