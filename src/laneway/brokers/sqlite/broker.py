"""The SQLite broker: the contract's verbs, each one transaction over the statements of `queries.sql`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...broker import MAX_BODY, Answer, Listing, Page, Turn
from ...clock import Clock, SystemClock
from ...config import Url
from ...errors import ConfigError, LeaseLost
from ...job import Claim, JobView, NewJob, QueueStats, Status, WorkerView
from ...outcome import Settlement
from ...shards import DEFAULT_SHARDS, shard_of
from ..common import REMEMBER_DEAD_S, REMEMBER_ENDED_S, again_at, check_jobs, due_at, storable, unknown_queue
from . import looking
from .database import Database, read_statements
from .waiting import Waiting

#: How many jobs go into one statement, and how many characters of them; SQLite takes a billion bytes at most.
CHUNK = 1_000
CHUNK_CHARS = 16_000_000

MAX_TIMEOUT_S = 3_600

_json: Callable[[Any], str] = lambda value: msgspec.json.encode(value).decode()  # noqa: E731 - a name for a pair of calls
_read_claims = msgspec.json.Decoder(list[Claim]).decode
_read_ids = msgspec.json.Decoder(list[int]).decode
_read_keys = msgspec.json.Decoder(list[str]).decode


class Queue(msgspec.Struct, frozen=True):
    """What the broker knows of a queue by heart."""

    name: str
    id: int
    shards: int
    #: Others may have added to them since: whoever claims or lists reads them anew.
    priorities: tuple[int, ...]


class SQLiteBroker:
    """Jobs in one SQLite file. Survives any crash of a process; of power, with `synchronous="full"`."""

    max_body = MAX_BODY

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "normal",
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        if synchronous not in ("normal", "full"):
            raise ConfigError(f"synchronous must be normal or full, not {synchronous!r}.")
        self._db = Database(Path(path), synchronous=synchronous, timeout_s=timeout_s)
        self._clock = clock or SystemClock()
        self._sql = read_statements("queries.sql")
        self._queues: dict[str, Queue] = {}
        self._waiting = Waiting(self._db, self._clock)

    @classmethod
    def from_url(cls, url: Url) -> SQLiteBroker:
        """sqlite:///relative.db or sqlite:////absolute.db, with ?synchronous=full&timeout=seconds."""
        path = url.rest.removeprefix("//")
        path = path[1:] if url.rest.startswith("///") else path
        if not path or path == ":memory:":
            raise ConfigError(
                "A sqlite URL needs a path, such as sqlite:///laneway.db; for a trial in memory use memory:."
            )
        options = url.take(("synchronous", "timeout"))
        try:
            timeout_s = float(options.get("timeout", 30))
        except ValueError:
            raise ConfigError(f"timeout must be seconds, not {options['timeout']!r}.") from None
        if not 0 <= timeout_s <= MAX_TIMEOUT_S:
            raise ConfigError(f"timeout must be 0 to {MAX_TIMEOUT_S} seconds, not {options['timeout']!r}.")
        return cls(path, synchronous=options.get("synchronous", "normal"), timeout_s=timeout_s)

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        if shards < 1:
            raise ConfigError(f"The queue {queue} needs at least 1 shard, not {shards}.")
        if queue not in self._queues:
            with self._db.write() as db:
                db.execute(self._sql["make_queue"], {"name": queue, "shards": shards})
            self._learn_queues()
        return self._queues[queue].shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs)
        self._know_queues(jobs)
        with self._db.write() as db:
            self._insert(db, jobs, self._clock.now())
        self._waiting.wake()

    def _insert(self, db: Any, jobs: Sequence[NewJob], now: float) -> None:
        rows: list[tuple[Any, ...]] = []
        chars = 0
        for job in jobs:
            queue = self._queues[job.queue]
            at = due_at(now, job.delay_s, job.perform_at)
            headers = _json(job.headers) if job.headers else None
            shard = shard_of(job.key, queue.shards)
            row = (queue.id, shard, job.key, job.body, job.score or 0.0, at, job.priority, job.expires, headers)
            if "\0" in job.body or "\0" in job.key:  # SQLite's JSON would end the text there
                self._insert_rows(db, rows)
                db.execute(self._sql["enqueue_one"], row)
                rows, chars = [], 0
                continue
            rows.append(row)
            chars += len(job.body) + len(headers or "")
            if len(rows) >= CHUNK or chars >= CHUNK_CHARS:
                self._insert_rows(db, rows)
                rows, chars = [], 0
        self._insert_rows(db, rows)

    def _insert_rows(self, db: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            db.execute(self._sql["enqueue"], {"jobs": _json(rows)})

    # -- queues known by heart ---------------------------------------------------------------------------

    def _learn_queues(self) -> None:
        with self._db.read() as db:
            self._queues = {queue.name: queue for queue in _read_queues(db, self._sql)}

    def _know_queues(self, jobs: Iterable[NewJob]) -> None:
        """Make queues and priorities that are new, before the jobs that are the first to use them."""
        wanted = {(job.queue, job.priority) for job in jobs}
        for name, priority in wanted:
            queue = self._queues.get(name)
            if queue is None:
                self.declare(name, DEFAULT_SHARDS)
                queue = self._queues[name]
            if priority not in queue.priorities:
                self._add_priority(name, priority)

    def _add_priority(self, name: str, priority: int) -> None:
        with self._db.write() as db:
            # Read within the transaction: another process may be adding one of its own.
            queue = next(queue for queue in _read_queues(db, self._sql) if queue.name == name)
            priorities = sorted({*queue.priorities, priority}, reverse=True)
            db.execute(self._sql["set_priorities"], {"queue": queue.id, "priorities": _json(priorities)})
        self._learn_queues()

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        with self._db.write() as db:
            values = {**msgspec.structs.asdict(worker), "name": worker.id, "now": self._clock.now()}
            db.execute(self._sql["join"], {**values, "queues": _json(list(worker.queues))})

    def turn(self, turn: Turn) -> Answer:
        queue = self._queue(turn.queue)
        for settlement in turn.settlements:
            if settlement.outbox:
                check_jobs(settlement.outbox)
                self._know_queues(settlement.outbox)
        with self._db.write() as db:
            row = db.execute(self._sql["turn_begin"], {"worker": turn.worker, "queue": queue.id}).fetchone()
            if row is None:
                raise LeaseLost(f"The worker {turn.worker} has been declared dead.")
            worker, last_seq, last_token, last_refused, priorities = row
            if last_seq == turn.seq:  # its answer was lost
                return Answer(self._claimed(db, queue, worker, last_token), last_token, _read_keys(last_refused))
            now = self._clock.now()
            token = self._next_token(db, now)
            refused, sent = self._settle(db, queue, turn.settlements, now)
            claimed = turn.limit > 0 and self._claim(db, queue, worker, token, turn, _read_ids(priorities), now)
            claims = self._claimed(db, queue, worker, token) if claimed else []
            values = {
                "worker": worker,
                "queue": queue.id,
                "seq": turn.seq,
                "token": token,
                "refused": _json(refused),
            }
            db.execute(self._sql["turn_end"], values)
        if sent:
            self._waiting.wake()
        return Answer(claims, token, refused)

    def _next_token(self, db: Any, now: float) -> int:
        db.execute(self._sql["next_token"], {"microseconds": int(now * 1e6)})
        token: int = db.execute(self._sql["token"]).fetchone()[0]
        return token

    def _settle(self, db: Any, queue: Queue, settlements: Sequence[Settlement], now: float) -> tuple[list[str], bool]:
        """Record the ends of runs. Returns the keys refused, and whether anything became waiting."""
        by_token: dict[int, list[Settlement]] = {}
        for settlement in settlements:
            by_token.setdefault(settlement.claim.token, []).append(settlement)
        refused: list[str] = []
        gone: list[int] = []
        back: list[int] = []
        outbox: list[NewJob] = []
        processed = failed = again = 0
        for token, group in by_token.items():
            ids = _json([settlement.claim.ref for settlement in group])
            held = set(_read_ids(db.execute(self._sql["still_held"], {"ids": ids, "token": token}).fetchone()[0]))
            for settlement in group:
                ref, verdict = settlement.claim.ref, settlement.verdict
                if ref not in held:
                    refused.append(settlement.claim.key)
                    continue
                held.discard(ref)  # the same claim twice in one turn is settled once
                if verdict == "done":
                    gone.append(ref)
                    processed += 1
                    if settlement.outbox:
                        outbox += settlement.outbox
                elif verdict == "release":
                    back.append(ref)
                else:
                    again += 1
                    failed += verdict != "postpone"
                    values = {
                        "id": ref,
                        "perform_at": again_at(now, settlement.delay_s),
                        "retry_count": settlement.retry_count,
                        "error": storable(settlement.error),
                        "now": now,
                    }
                    db.execute(self._sql[f"settle_{verdict}"], values)
                    if verdict == "bury":
                        gone.append(ref)
        if gone:
            db.execute(self._sql["settle_done"], {"ids": _json(gone)})
        if back:
            db.execute(self._sql["settle_release"], {"ids": _json(back)})
        if outbox:
            self._insert(db, outbox, now)
        if processed or failed:
            db.execute(self._sql["count_runs"], {"queue": queue.id, "processed": processed, "failed": failed})
        return refused, bool(outbox or back or again)

    def _claim(
        self, db: Any, queue: Queue, worker: int, token: int, turn: Turn, priorities: Sequence[int], now: float
    ) -> int:
        shards = range(queue.shards) if turn.shards is None else set(turn.shards)
        values = {"queue": queue.id, "shards": _json(list(shards)), "now": now, "worker": worker, "token": token}
        left = turn.limit
        for priority in priorities:
            left -= db.execute(self._sql["claim"], {**values, "priority": priority, "limit": left}).rowcount
            if left <= 0:
                break
        return turn.limit - left

    def _claimed(self, db: Any, queue: Queue, worker: int, token: int) -> list[Claim]:
        values = {"name": queue.name, "worker": worker, "token": token}
        return _read_claims(db.execute(self._sql["claimed"], values).fetchone()[0])

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return self._waiting.wait(self._sql["next_due"], queues, timeout_s)

    def nudge(self) -> None:
        self._waiting.nudge()

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        with self._db.write() as db:
            id = self._living(db, worker)
            db.execute(self._sql["renew"], {"worker": id, "now": self._clock.now()})
            values = {"worker": id, "before": before, "held": _json(list(held))}
            given_back = db.execute(self._sql["give_back_unknown"], values).rowcount
        if given_back:
            self._waiting.wake()

    def leave(self, worker: str) -> int:
        with self._db.write() as db:
            row = db.execute(self._sql["worker_id"], {"name": worker}).fetchone()
            if row is None:
                return 0
            given_back: int = db.execute(self._sql["give_back"], {"worker": row[0]}).rowcount
            db.execute(self._sql["forget_worker"], {"worker": row[0]})
            db.execute(self._sql["forget_turns"])
        if given_back:
            self._waiting.wake()
        return given_back

    def leases(self) -> dict[str, tuple[int, float]]:
        with self._db.read() as db:
            return {name: (counter, lease_s) for name, counter, lease_s in db.execute(self._sql["leases"]).fetchall()}

    def declare_dead(self, worker: str, counter: int) -> bool:
        with self._db.write() as db:
            values = {"name": worker, "counter": counter, "now": self._clock.now()}
            return bool(db.execute(self._sql["declare_dead"], values).rowcount)

    def reclaim(self) -> int:
        now = self._clock.now()
        count = 0
        with self._db.write() as db:
            for (worker,) in db.execute(self._sql["claims_of_the_dead"]).fetchall():
                count += db.execute(self._sql["give_back"], {"worker": worker}).rowcount
            db.execute(self._sql["forget_turns"])
            db.execute(self._sql["forget_dead"], {"before": now - REMEMBER_DEAD_S})
            db.execute(self._sql["forget_endings"], {"before": now - REMEMBER_ENDED_S})
        if count:
            self._waiting.wake()
        return count

    def _living(self, db: Any, worker: str) -> int:
        row = db.execute(self._sql["worker_id"], {"name": worker}).fetchone()
        if row is None:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        id: int = row[0]
        return id

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._learn_queues()
        if name not in self._queues:
            raise unknown_queue(name)
        return self._queues[name]

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        self._learn_queues()
        return {name: queue.shards for name, queue in self._queues.items()}

    def stats(self) -> list[QueueStats]:
        with self._db.read() as db:
            return looking.stats(db, self._sql, self._clock.now())

    def workers(self) -> list[WorkerView]:
        with self._db.read() as db:
            return looking.workers(db, self._sql)

    def status(self, queue: str, key: str) -> Status:
        known = self._queue(queue)
        with self._db.read() as db:
            return looking.status(db, self._sql, known.id, key, self._clock.now())

    def find(self, queue: str, key: str) -> list[JobView]:
        known = self._queue(queue)
        with self._db.read() as db:
            return looking.find(db, self._sql, known.name, known.id, key, self._clock.now())

    def listing(self, queue: str, which: Listing, *, after: str | None = None, limit: int = 100) -> Page:
        self._queue(queue)
        self._learn_queues()
        with self._db.read() as db:
            now = self._clock.now()
            return looking.listing(db, self._sql, self._queues[queue], which, after=after, limit=limit, now=now)

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str) -> bool:
        values = {"queue": self._queue(queue).id, "key": key, "status": "cancelled", "now": self._clock.now()}
        with self._db.write() as db:
            cancelled = bool(db.execute(self._sql["cancel"], values).rowcount)
            if cancelled:
                db.execute(self._sql["remember"], values)
            return cancelled

    def reschedule(self, queue: str, key: str, *, delay_s: float = 0.0, perform_at: float | None = None) -> bool:
        values = {"queue": self._queue(queue).id, "key": key}
        values["perform_at"] = due_at(self._clock.now(), delay_s, perform_at)
        with self._db.write() as db:
            moved = bool(db.execute(self._sql["reschedule"], values).rowcount)
        self._waiting.wake()
        return moved

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        known = self._queue(queue)
        revived = 0
        with self._db.write() as db:
            for key in keys:
                values = {"queue": known.id, "key": key, "now": self._clock.now()}
                if db.execute(self._sql["revive"], values).rowcount:
                    revived += db.execute(self._sql["delete_dead"], values).rowcount
        self._waiting.wake()
        return revived

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        known = self._queue(queue)
        with self._db.write() as db:
            return sum(db.execute(self._sql["delete_dead"], {"queue": known.id, "key": key}).rowcount for key in keys)

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self._db.read() as db:
            return looking.check(db, self._sql, self._db.path)

    def close(self) -> None:
        self._waiting.nudge()
        self._db.close()
        self._queues = {}  # the file may be another one when it is opened again


def _read_queues(db: Any, sql: Mapping[str, str]) -> list[Queue]:
    return [
        Queue(name, id, shards, tuple(_read_ids(priorities)))
        for name, id, shards, priorities in db.execute(sql["queues"]).fetchall()
    ]
