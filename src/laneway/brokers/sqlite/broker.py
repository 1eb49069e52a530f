"""SQLiteBroker: each verb of the contract is one transaction over the statements in `queries/`.

New queues and priorities are committed just before the jobs that use them first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ...broker import MAX_BODY, Answer, Listing, Order, Page, ReshardProgress, Turn
from ...clock import Clock, SystemClock
from ...errors import ConfigError, LeaseLost
from ...failpoints import armed, reach
from ...jobs.data import JobView, NewJob, QueueStats, StartedRun, Status, WorkerView
from ...jobs.shards import DEFAULT_SHARDS
from ...urls import Url
from ..shared import REMEMBER_DEAD_S, REMEMBER_ENDED_S, check_jobs, check_shards, due_at, unknown_queue
from . import enqueue, inspect, operate, repair, reshard
from .database import Database, read_statements
from .inspect import PageRequest, listing
from .queues import QueueRow, add_priority, queues
from .queues import to_json as _json
from .subscriptions import SQLiteSubscriptions
from .turn import claim, claimed, count_deaths, give_back, next_token, settle
from .wait import DatabaseWait

MAX_TIMEOUT_S = 3_600

_read_ids = msgspec.json.Decoder(list[int]).decode
_read_keys = msgspec.json.Decoder(list[str]).decode


class SQLiteBroker(SQLiteSubscriptions):
    """Jobs in one SQLite file. Survives any crash of a process; of power, with `synchronous="full"`."""

    max_body = MAX_BODY
    shared = True
    remote = False

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
        #: Lists travel in one parameter, and answers of many rows as one text, both JSON: ADR 0002 says why.
        self._sql = read_statements("queries")
        #: The queues, and the epoch in which they were learned; it changes when the shards of any of them do. One
        #: value, because another thread may learn them anew at any time, and from an older snapshot.
        self._known: tuple[int, dict[str, QueueRow]] = (0, {})
        self._waiting = DatabaseWait(self._db, self._clock)

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
        check_shards(queue, shards)
        if queue not in self._learn_queues():
            with self._db.write() as db:
                db.execute(self._sql["make_queue"], {"name": queue, "shards": shards})
            self._learn_queues()
        return self._queue(queue).shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs)
        self._know_queues(jobs)
        with self._db.write() as db:
            self._store(db, jobs, self._clock.now())
        self._waiting.wake()

    def _store(self, db: Any, jobs: Sequence[NewJob], now: float) -> None:
        if jobs:
            known = self._known_now(db, {job.queue for job in jobs})
            enqueue.insert(db, self._sql, jobs, known, now)

    # -- queues known by heart ---------------------------------------------------------------------------

    def _learn_queues(self) -> dict[str, QueueRow]:
        with self._db.read() as db:
            return self._read_queues(db)

    def _read_queues(self, db: Any) -> dict[str, QueueRow]:
        # The epoch first: if it grows in between, the queues are read once too often, not once too rarely.
        epoch: int = db.execute(self._sql["epoch"]).fetchone()[0]
        learned = queues(db, self._sql)
        self._known = (epoch, learned)
        return learned

    def _known_now(self, db: Any, names: Collection[str]) -> dict[str, QueueRow]:
        """Within a transaction: these queues with their shards as they are now, whoever has changed them."""
        epoch, known = self._known
        if db.execute(self._sql["epoch"]).fetchone()[0] == epoch and known.keys() >= set(names):
            return known
        return self._read_queues(db)

    def _queue(self, name: str) -> QueueRow:
        self._db.check_file()
        queue = self._known[1].get(name) or self._learn_queues().get(name)
        if queue is None:
            raise unknown_queue(name)
        return queue

    def _know_queues(self, jobs: Iterable[NewJob]) -> None:
        """Make queues and priorities that are new, before the jobs that are the first to use them."""
        self._db.check_file()
        for name, priority in {(job.queue, job.priority) for job in jobs}:
            if name not in self._known[1]:
                self.declare(name, DEFAULT_SHARDS)
            if priority not in self._queue(name).priorities:
                with self._db.write() as db:
                    add_priority(db, self._sql, name, priority)
                self._learn_queues()

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        with self._db.write() as db:
            values = {**msgspec.structs.asdict(worker), "name": worker.id, "now": self._clock.now()}
            lists = {"queues": _json(list(worker.queues)), "shards": _json(worker.shards)}
            db.execute(self._sql["join"], {**values, **lists})

    def turn(self, turn: Turn) -> Answer:
        queue = self._queue(turn.queue)
        outbox = [job for settlement in turn.settlements for job in settlement.outbox or ()]
        check_jobs(outbox)
        self._know_queues(outbox)
        with self._db.write() as db:
            row = db.execute(self._sql["turn_begin"], {"worker": turn.worker, "queue": queue.id}).fetchone()
            if row is None:
                raise LeaseLost(f"The worker {turn.worker} has been declared dead.")
            worker, last_seq, last_token, last_refused, priorities, shards, epoch, target, paused = row
            queue = msgspec.structs.replace(queue, shards=shards, epoch=epoch, target=target)
            if last_seq == turn.seq:  # its answer was lost
                claims = claimed(db, self._sql, queue, worker, last_token, turn)
                return Answer(claims, last_token, _read_keys(last_refused), epoch, shards, target)
            now = self._clock.now()
            token = next_token(db, self._sql, now)
            settled = settle(db, self._sql, queue, worker, turn.settlements, now)
            self._store(db, settled.outbox, now)
            if armed:
                reach("inside settle")
            wanted = () if paused else _read_ids(priorities)
            claims = claim(db, self._sql, queue, wanted, worker, token, turn, now)
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
        return Answer(claims, token, settled.refused, epoch, shards, target)

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
            unknown = _read_ids(db.execute(self._sql["claims_unknown"], values).fetchone()[0])
            give_back(db, self._sql, unknown, unstarted=True)
        if unknown:
            self._waiting.wake()

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        with self._db.write() as db:
            row = db.execute(self._sql["worker_id"], {"name": worker}).fetchone()
            if row is None:
                return 0
            count_deaths(db, self._sql, row[0], died)
            given_back = self._give_back_all(db, row[0])
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
                count += self._give_back_all(db, worker)
            db.execute(self._sql["forget_turns"])
            db.execute(self._sql["forget_dead"], values)
            db.execute(self._sql["forget_endings"], values)
        if count:
            self._waiting.wake()
        return count

    def _give_back_all(self, db: Any, worker: int) -> int:
        """Give back whatever a worker holds; it may have been started, so the attempt stays counted."""
        ids = _read_ids(db.execute(self._sql["claims_of"], {"worker": worker}).fetchone()[0])
        give_back(db, self._sql, ids, unstarted=False)
        return len(ids)

    def _living(self, db: Any, worker: str) -> int:
        row = db.execute(self._sql["worker_id"], {"name": worker}).fetchone()
        if row is None:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        id: int = row[0]
        return id

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        return {name: queue.shards for name, queue in self._learn_queues().items()}

    def stats(self) -> list[QueueStats]:
        with self._db.read() as db:
            return inspect.stats(db, self._sql, self._clock)

    def lags(self, queue: str) -> dict[int, float]:
        known = self._queue(queue)
        with self._db.read() as db:
            return inspect.lags(db, self._sql, known.id, self._clock)

    def workers(self) -> list[WorkerView]:
        with self._db.read() as db:
            return inspect.workers(db, self._sql)

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        known = self._queue(queue)
        with self._db.read() as db:
            return inspect.status(db, self._sql, known.id, key, identity, self._clock.now())

    def find(self, queue: str, key: str) -> list[JobView]:
        known = self._queue(queue)
        with self._db.read() as db, _snapshot(db):
            return inspect.find(db, self._sql, known.name, known.id, key, self._clock.now())

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        known = self._learn_queues().get(queue)  # anew: its priorities say where to look
        if known is None:
            raise unknown_queue(queue)
        request = PageRequest(which, order, reverse, start, after, limit)
        with self._db.read() as db, _snapshot(db):
            return listing(db, self._sql, known, request, self._clock.now())

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        known = self._queue(queue)
        with self._db.write() as db:
            return operate.cancel(db, self._sql, known.id, key, identity, self._clock.now())

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        known = self._queue(queue)
        at = due_at(self._clock.now(), delay_s, perform_at)
        with self._db.write() as db:
            moved = operate.reschedule(db, self._sql, known.id, key, identity, at)
        self._waiting.wake()
        return moved

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        known, now = self._queue(queue), self._clock.now()
        with self._db.write() as db:
            moved = sum(operate.run_now(db, self._sql, known.id, key, now) for key in dict.fromkeys(keys))
        self._waiting.wake()
        return moved

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._take_failed(queue, keys, keep=True)

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._take_failed(queue, keys, keep=False)

    def _take_failed(self, queue: str, keys: Sequence[str], *, keep: bool) -> int:
        known, now = self._queue(queue), self._clock.now()
        with self._db.write() as db:
            taken = sum(operate.take_failed(db, self._sql, known.id, key, now, keep=keep) for key in keys)
        self._waiting.wake()
        return taken

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        self._queue(queue)
        with self._db.write() as db:
            known, now = self._known_now(db, [queue])[queue], self._clock.now()
            revived = sum(operate.revive(db, self._sql, known, key, now) for key in keys)
        self._waiting.wake()
        return revived

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        known = self._queue(queue)
        with self._db.write() as db:
            return sum(operate.delete_dead(db, self._sql, known.id, key) for key in keys)

    def pause(self, queue: str) -> bool:
        return self._set_paused(queue, paused=True)

    def resume(self, queue: str) -> bool:
        # This process's waiters are woken; those of others see that something was written.
        resumed = self._set_paused(queue, paused=False)
        if resumed:
            self._waiting.wake()
        return resumed

    def _set_paused(self, queue: str, *, paused: bool) -> bool:
        self._db.check_file()
        with self._db.write() as db:
            return bool(db.execute(self._sql["set_paused"], {"name": queue, "paused": paused}).rowcount)

    # -- shards ----------------------------------------------------------------------------------------

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        check_shards(queue, shards)
        limit = max(limit, 1)
        self._queue(queue)
        with self._db.write() as db:
            known = self._read_queues(db)[queue]  # as it is now: others may be taking steps too
            resharded = reshard.step(db, self._sql, known, shards, limit)
        self._learn_queues()
        if resharded.done:
            self._waiting.wake()
        return resharded

    @property
    def path(self) -> Path:
        """The file."""
        return self._db.path

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self._db.read() as db:
            return repair.check(db, self._sql, self._db.path)

    def repair(self) -> list[str]:
        with self._db.write() as db:
            mended = repair.repair(db, self._sql, self._clock.now())
        self._learn_queues()
        self._waiting.wake()
        return mended

    def close(self) -> None:
        self._waiting.nudge()
        self._db.close()
        self._known = (0, {})  # the file may be another one when it is opened again


@contextmanager
def _snapshot(db: Any) -> Iterator[None]:
    """Several statements that see the same moment."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
