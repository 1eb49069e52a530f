"""RetryStore: the retry state of jobs whose message stays, in the queue's table or in the memory of this process.

SQS cannot change a message. The message of a failed keyed call must stay at the head of its group, so its failures
are stored here, and so are the deaths of any job. In the table they are rows under `laneway-state`, by the job's id,
without a `perform_at`, so that they are never taken for delayed jobs. Without a table they are lost with the process:
another process starts to count from zero.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from .client import Expressions, Row, RowClient

if TYPE_CHECKING:
    from ..account import Account

_STATE = "laneway-state"
#: SQS keeps a message for 14 days at most.
_KEPT_S = 15 * 86_400.0


class RetryState(msgspec.Struct):
    """What has happened to a job since its message was sent."""

    retry_count: int = -1
    attempt: int = 0
    deaths: int = 0
    error: str | None = None
    not_before: float = 0.0


class RetryStateRows:
    """The retry states in a table."""

    def __init__(self, account: Account, rows: RowClient) -> None:
        self._account = account
        self._rows = rows

    def get_all(self, ids: Collection[str]) -> dict[str, RetryState]:
        """The states of these jobs, by id. Most jobs have none."""
        keys = [(_STATE, id) for id in dict.fromkeys(ids) if id]
        return {row["job_id"]: _state_of(row) for row in self._rows.get_all(keys)}

    def save(self, id: str, state: RetryState) -> None:
        """Store the state of a job in place of the former one."""
        row = {"scheduler": _STATE, "job_id": id, "expires_at": self._expiry()}
        self._rows.put(row | msgspec.structs.asdict(state))

    def forget(self, ids: Collection[str]) -> None:
        """Delete the states of finished jobs."""
        self._rows.delete_all(
            [(_STATE, id) for id in dict.fromkeys(ids) if id],
            lambda rest: f"{len(rest)} states of finished jobs were not deleted; they are after 15 days.",
        )

    def add_death(self, id: str, worker: str) -> None:
        """Count that a job was running when this worker died. May be repeated: a worker dies once."""
        self._rows.update((_STATE, id), Expressions().add(died_in={worker}).set(expires_at=self._expiry()))

    def _expiry(self) -> int:
        return int(self._account.clock.now() + _KEPT_S)


def _state_of(row: Row) -> RetryState:
    return RetryState(
        retry_count=int(row.get("retry_count", -1)),
        attempt=int(row.get("attempt", 0)),
        deaths=int(row.get("deaths", 0)) + len(row.get("died_in", ())),
        error=row.get("error"),
        not_before=float(row.get("not_before", 0.0)),
    )


#: The most states in memory. The oldest go first.
REMEMBER = 100_000


class RetryStore:
    """The retry states of jobs, by queue and id."""

    def __init__(self, account: Account) -> None:
        self._tables = account.tables
        self._lock = threading.Lock()
        self._in_memory: OrderedDict[tuple[str, str], RetryState] = OrderedDict()

    def has_table(self, queue: str) -> bool:
        """Whether states outlive this process."""
        return self._tables.of(queue) is not None

    def of(self, queue: str, ids: Collection[str]) -> dict[str, RetryState]:
        """The states of those jobs that have one."""
        table = self._tables.of(queue)
        if table is not None:
            return table.retry_states.get_all(ids)
        with self._lock:
            return {id: state for id in ids if (state := self._in_memory.get((queue, id))) is not None}

    def save(self, queue: str, id: str, state: RetryState) -> None:
        table = self._tables.of(queue)
        if table is not None:
            table.retry_states.save(id, state)
            return
        with self._lock:
            self._in_memory[queue, id] = state
            self._in_memory.move_to_end((queue, id))
            while len(self._in_memory) > REMEMBER:
                self._in_memory.popitem(last=False)

    def forget(self, queue: str, ids: Iterable[str]) -> None:
        ids = list(ids)
        table = self._tables.of(queue)
        if table is not None:
            table.retry_states.forget(ids)
        with self._lock:
            for id in ids:
                self._in_memory.pop((queue, id), None)
