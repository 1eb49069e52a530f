"""RetryStore: the retry state of jobs, in the queue's table or, if it has none, in the memory of this process.

SQS cannot change a message, so the failures and the next due time of a job whose message stays are stored here. In
memory they are lost with the process: another process starts to count from zero. Job history goes to the table only,
because other processes read it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from .job_history import HistoryRow
from .retry_state import RetryState
from .tables import Tables

#: So many are kept in memory; the oldest go first.
REMEMBER = 100_000

_log = logging.getLogger("laneway")


class RetryStore:
    """The states of jobs, by queue and id: in the table, or here."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        #: Queues whose missing table has been told.
        self._told: set[str] = set()
        self._kept: OrderedDict[tuple[str, str], RetryState] = OrderedDict()

    def has_table(self, queue: str) -> bool:
        """Whether states outlive this process."""
        return self._tables.of(queue) is not None

    def of(self, queue: str, ids: Sequence[str]) -> dict[str, RetryState]:
        """The states of those jobs that have one."""
        table = self._tables.of(queue)
        if table is not None:
            return dict(table.states(ids)) if ids else {}
        with self._lock:
            return {id: state for id in ids if (state := self._kept.get((queue, id))) is not None}

    def save(self, queue: str, id: str, state: RetryState) -> None:
        table = self._tables.of(queue)
        if table is not None:
            table.save_state(id, state)
            return
        with self._lock:
            self._kept[queue, id] = state
            self._kept.move_to_end((queue, id))
            while len(self._kept) > REMEMBER:
                self._kept.popitem(last=False)

    def record(self, queue: str, records: Mapping[str, HistoryRow]) -> None:
        """Keep how jobs ended, if that is wanted: in the table alone, because it is others who ask."""
        if not self._tables.keeps_records:
            return
        table = self._tables.of(queue)
        if table is not None:
            table.record(queue, records)
        elif queue not in self._told:
            self._told.add(queue)
            _log.warning(
                "how jobs of the queue %s end is not kept although records=on is in the URL, because there is no "
                "table %s; make it with `laneway aws create`",
                queue,
                self._tables.name(queue),
            )

    def forget(self, queue: str, ids: Iterable[str]) -> None:
        ids = list(ids)
        table = self._tables.of(queue)
        if table is not None and ids:
            table.forget_states(ids)
        with self._lock:
            for id in ids:
                self._kept.pop((queue, id), None)
