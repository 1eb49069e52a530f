"""The SQLite broker: the contract's verbs, each one transaction over the statements of `queries.sql`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...broker import MAX_BODY, Answer, Listing, Page, Turn
from ...clock import Clock, SystemClock
from ...config import Url
from ...errors import ConfigError, LeaseLost
from ...job import JobView, NewJob, QueueStats, Status, WorkerView
from ...shards import DEFAULT_SHARDS
from ..common import REMEMBER_DEAD_S, REMEMBER_ENDED_S, check_jobs, due_at, unknown_queue
from . import looking, storing, turns
from .database import Database, read_statements
from .storing import Queue
from .storing import to_json as _json
from .waiting import Waiting

MAX_TIMEOUT_S = 3_600

_read_ids = msgspec.json.Decoder(list[int]).decode
_read_keys = msgspec.json.Decoder(list[str]).decode


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
        return self._queue(queue).shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs)
        known = self._know_queues(jobs)
        with self._db.write() as db:
            storing.insert(db, self._sql, jobs, known, self._clock.now())
        self._waiting.wake()

    # -- queues known by heart ---------------------------------------------------------------------------

    def _learn_queues(self) -> dict[str, Queue]:
        with self._db.read() as db:
            self._queues = learned = storing.queues(db, self._sql)
        return learned

    def _queue(self, name: str) -> Queue:
        self._db.check_file()
        queue = self._queues.get(name) or self._learn_queues().get(name)
        if queue is None:
            raise unknown_queue(name)
        return queue

    def _know_queues(self, jobs: Iterable[NewJob]) -> dict[str, Queue]:
        """Make queues and priorities that are new, before the jobs that are the first to use them."""
        self._db.check_file()
        wanted = {(job.queue, job.priority) for job in jobs}
        for name, priority in wanted:
            if name not in self._queues:
                self.declare(name, DEFAULT_SHARDS)
            if priority not in self._queue(name).priorities:
                with self._db.write() as db:
                    storing.add_priority(db, self._sql, name, priority)
                self._learn_queues()
        return {name: self._queue(name) for name, _ in wanted}

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        with self._db.write() as db:
            values = {**msgspec.structs.asdict(worker), "name": worker.id, "now": self._clock.now()}
            db.execute(self._sql["join"], {**values, "queues": _json(list(worker.queues))})

    def turn(self, turn: Turn) -> Answer:
        queue = self._queue(turn.queue)
        outbox = [job for settlement in turn.settlements for job in settlement.outbox or ()]
        check_jobs(outbox)
        known = self._know_queues(outbox)
        with self._db.write() as db:
            row = db.execute(self._sql["turn_begin"], {"worker": turn.worker, "queue": queue.id}).fetchone()
            if row is None:
                raise LeaseLost(f"The worker {turn.worker} has been declared dead.")
            worker, last_seq, last_token, last_refused, priorities = row
            if last_seq == turn.seq:  # its answer was lost
                claims = turns.claimed(db, self._sql, queue, worker, last_token)
                return Answer(claims, last_token, _read_keys(last_refused))
            now = self._clock.now()
            token = turns.next_token(db, self._sql, now)
            settled = turns.settle(db, self._sql, queue, turn.settlements, now)
            storing.insert(db, self._sql, settled.outbox, known, now)
            claims = turns.claim(db, self._sql, queue, _read_ids(priorities), worker, token, turn, now)
            values = {
                "worker": worker,
                "queue": queue.id,
                "seq": turn.seq,
                "token": token,
                "refused": _json(settled.refused),
            }
            db.execute(self._sql["turn_end"], values)
        if settled.waits:
            self._waiting.wake()
        return Answer(claims, token, settled.refused)

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        self._db.check_file()
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
        values = {"dead_before": now - REMEMBER_DEAD_S, "ended_before": now - REMEMBER_ENDED_S}
        with self._db.read() as db:
            if not db.execute(self._sql["untidy"], values).fetchone()[0]:
                return 0
        count = 0
        with self._db.write() as db:
            for (worker,) in db.execute(self._sql["claims_of_the_dead"]).fetchall():
                count += db.execute(self._sql["give_back"], {"worker": worker}).rowcount
            db.execute(self._sql["forget_turns"])
            db.execute(self._sql["forget_dead"], values)
            db.execute(self._sql["forget_endings"], values)
        if count:
            self._waiting.wake()
        return count

    def _living(self, db: Any, worker: str) -> int:
        row = db.execute(self._sql["worker_id"], {"name": worker}).fetchone()
        if row is None:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        id: int = row[0]
        return id

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        self._learn_queues()
        return {name: queue.shards for name, queue in self._queues.items()}

    def stats(self) -> list[QueueStats]:
        with self._db.read() as db:
            return looking.stats(db, self._sql, self._clock)

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
        known = self._learn_queues().get(queue)  # anew: its priorities say where to look
        if known is None:
            raise unknown_queue(queue)
        with self._db.read() as db:
            now = self._clock.now()
            return looking.listing(db, self._sql, known, which, after=after, limit=limit, now=now)

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

    @property
    def path(self) -> Path:
        """The file."""
        return self._db.path

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self._db.read() as db:
            return looking.check(db, self._sql, self._db.path)

    def close(self) -> None:
        self._waiting.nudge()
        self._db.close()
        self._queues = {}  # the file may be another one when it is opened again
