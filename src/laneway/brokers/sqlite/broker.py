"""SQLiteBroker: each verb of the contract is one transaction over the statements in `queries/`.

New queues and priorities are committed just before the jobs that use them first. MemoryBroker is the same in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from ...broker import Answer, Capabilities, Turn
from ...clock import Clock, SystemClock
from ...errors import ConfigError, LeaseLost
from ...failpoints import armed, reach
from ...jobs.data import Kind, NewJob, StartedRun, Status, WorkerView
from ...urls import Url
from ..shared import MAX_TIMEOUT_S, REMEMBER_DEAD_S, REMEMBER_ENDED_S, check_jobs, check_shards, due_at
from . import enqueue, inspect, operate, repair, reshard
from .database import Database, MemoryDatabase, Transaction
from .queues import to_json as _json
from .store import Store
from .subscriptions import SQLiteEvents
from .turn import claim, claimed, count_deaths, give_back, next_token, settle

_read_ids = msgspec.json.Decoder(list[int]).decode
_read_keys = msgspec.json.Decoder(list[str]).decode


class SQLiteBroker:
    """A broker that stores jobs in one SQLite file.

    The jobs survive any crash of a process. With `synchronous="full"` they also survive a power failure.
    """

    capabilities = Capabilities(shared=True)
    _database: type[Database] = Database

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
        self._db = self._database(Path(path), synchronous=synchronous, timeout_s=timeout_s)
        self._clock = clock or SystemClock()
        self._store = Store(self._db, self._clock)
        self._waiting = self._store.waiting
        self.inspect = inspect.SQLiteInspect(self._store)
        self.operate = operate.SQLiteOperate(self._store, self.inspect)
        self.events = SQLiteEvents(self._store)
        self.shards = reshard.SQLiteShards(self._store)
        self.health = repair.SQLiteHealth(self._store)

    @classmethod
    def from_url(cls, url: Url) -> SQLiteBroker:
        """The broker of sqlite:///relative.db or sqlite:////absolute.db, with ?synchronous=full&timeout=seconds."""
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
        found = self._store.declare(queue, shards)
        with self._db.write():
            pass  # the connection that the first `enqueue` needs is open now, and the file can be written
        return found.shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs)
        self._store.ensure_queues(jobs)
        alone = len(jobs) == 1 and jobs[0].kind is Kind.PLAIN
        if not (alone and enqueue.insert_alone(self._store, jobs[0], self._clock.now())):
            with self._db.write() as tx:
                self._insert(tx, jobs, self._clock.now())
        self._waiting.wake()

    def _insert(self, tx: Transaction, jobs: Sequence[NewJob], now: float) -> None:
        if jobs:
            known = self._store.current_queues(tx, {job.queue for job in jobs})
            enqueue.insert(tx, jobs, known, now)

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        with self._db.write() as tx:
            lists = {"queues": _json(list(worker.queues)), "shards": _json(worker.shards)}
            values = {**msgspec.structs.asdict(worker), **lists}
            tx.run("join", **values, name=worker.id, now=self._clock.now())

    def turn(self, turn: Turn) -> Answer:
        queue = self._store.queue(turn.queue)
        outbox = [job for settlement in turn.settlements for job in settlement.outbox or ()]
        check_jobs(outbox)
        self._store.ensure_queues(outbox)
        with self._db.write() as tx:
            row = tx.one("turn_begin", worker=turn.worker, queue=queue.id)
            if row is None:
                raise LeaseLost(f"The worker {turn.worker} has been declared dead.")
            worker, last_seq, last_token, last_refused, priorities, shards, epoch, target, paused = row
            queue = msgspec.structs.replace(queue, shards=shards, epoch=epoch, target=target)
            if last_seq == turn.seq:  # a repeat: the first answer was lost
                claims = claimed(tx, queue, worker, last_token, turn)
                return Answer(claims, last_token, _read_keys(last_refused), epoch, shards, target)
            now = self._clock.now()
            token = next_token(tx, now)
            settled = settle(tx, queue, worker, turn.settlements, now)
            self._insert(tx, settled.outbox, now)
            if armed:
                reach("inside settle")
            wanted = () if paused else _read_ids(priorities)
            claims = claim(tx, queue, wanted, worker, token, turn, now)
            refused = _json(settled.refused)
            tx.run("turn_end", worker=worker, queue=queue.id, seq=turn.seq, token=token, refused=refused)
        if settled.waits:
            self._waiting.wake()
        return Answer(claims, token, settled.refused, epoch, shards, target)

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        self._db.check_file()
        return self._waiting.wait(queues, timeout_s)

    def nudge(self) -> None:
        self._waiting.nudge()

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        with self._db.write() as tx:
            id = self._living(tx, worker)
            tx.run("renew", worker=id, now=self._clock.now())
            unknown = _read_ids(tx.value("claims_unknown", worker=id, before=before, held=_json(list(held))))
            give_back(tx, unknown, unstarted=True)
        if unknown:
            self._waiting.wake()

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        with self._db.write() as tx:
            row = tx.one("worker_id", name=worker)
            if row is None:
                return 0
            count_deaths(tx, row[0], died)
            given_back = self._give_back_all(tx, row[0])
            tx.run("forget_worker", worker=row[0])
            tx.run("forget_turns")
        if given_back:
            self._waiting.wake()
        return given_back

    def leases(self) -> dict[str, tuple[int, float]]:
        with self._db.read() as tx:
            return {name: (counter, lease_s) for name, counter, lease_s in tx.all("leases")}

    def declare_dead(self, worker: str, counter: int) -> bool:
        with self._db.write() as tx:
            return bool(tx.run("declare_dead", name=worker, counter=counter, now=self._clock.now()).rowcount)

    def reclaim(self) -> int:
        now = self._clock.now()
        values = {"dead_before": now - REMEMBER_DEAD_S, "ended_before": now - REMEMBER_ENDED_S}
        with self._db.read() as tx:
            if not tx.value("untidy", **values):
                return 0
        count = 0
        with self._db.write() as tx:
            for (worker,) in tx.all("claims_of_the_dead"):
                count += self._give_back_all(tx, worker)
            tx.run("forget_turns")
            tx.run("forget_dead", **values)
            tx.run("forget_endings", **values)
        if count:
            self._waiting.wake()
        return count

    def _give_back_all(self, tx: Transaction, worker: int) -> int:
        """Give back all claims of a worker. Their runs may have been started, so the attempts stay counted."""
        ids = _read_ids(tx.value("claims_of", worker=worker))
        give_back(tx, ids, unstarted=False)
        return len(ids)

    def _living(self, tx: Transaction, worker: str) -> int:
        row = tx.one("worker_id", name=worker)
        if row is None:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        id: int = row[0]
        return id

    # -- a handle's verbs ------------------------------------------------------------------------------

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        known = self._store.queue(queue)
        with self._db.read() as tx:
            return inspect.status(tx, known.id, key, identity, self._clock.now())

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        known = self._store.queue(queue)
        with self._db.write() as tx:
            return operate.cancel(tx, known.id, key, identity, self._clock.now())

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        known = self._store.queue(queue)
        at = due_at(self._clock.now(), delay_s, perform_at)
        with self._db.write() as tx:
            moved = operate.reschedule(tx, known.id, key, identity, at)
        self._waiting.wake()
        return moved

    def close(self) -> None:
        self._waiting.nudge()
        self._db.close()
        self._store.forget()  # another file may be there when it is opened again


class MemoryBroker(SQLiteBroker):
    """`memory:`: the same broker on a database in the memory of this process, for tests and trials.

    Each broker has its own jobs. `close` keeps them; they are gone with the object. A forked child has a copy.
    """

    capabilities = Capabilities(
        shared=False, conditions={"isolation, and the time limits of sync tasks": "not enforced"}
    )
    _database = MemoryDatabase

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(":memory:", clock=clock)

    @classmethod
    def from_url(cls, url: Url) -> MemoryBroker:
        """The broker of the URL memory:, which takes no options."""
        url.take(())
        if url.rest:
            raise ConfigError(f"A memory URL is just memory:, not {url.scheme}:{url.rest}.")
        return cls()
