"""Tables: finds the waiter table of a queue. Table: one table, with the rows of each kind.

Either all queues share a table, or each queue uses the table of its name if that exists. A table that was found is
used until a request reports it as gone. A missing table is looked for again after a minute, so that a table which is
created later is found.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..errors import DeniedError, MissingError
from ..settings import LOOK_AGAIN_S
from .client import RowClient
from .delayed_jobs import DelayedJobs
from .items import INDEX
from .job_history import HistoryRows
from .locks import LockRows
from .queues import QueueRows
from .retry_state import RetryStateRows
from .workers import WorkerRows

if TYPE_CHECKING:
    from ..account import Account

_log = logging.getLogger("laneway")


class Table:
    """One waiter table."""

    def __init__(self, account: Account, name: str, home: str, *, has_local_index: bool) -> None:
        """`home` is the queue whose table it is; empty if several queues share it."""
        self.name = name
        rows = RowClient(account, name, has_local_index=has_local_index)
        self.history = HistoryRows(account, rows)
        self.delayed = DelayedJobs(account, rows, self.history, home)
        self.retry_states = RetryStateRows(account, rows)
        self.workers = WorkerRows(account, rows)
        self.queues = QueueRows(rows)
        self.locks = LockRows(rows)


class Tables:
    """The waiter tables of the queues that were declared or asked for."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._queues: dict[str, None] = {}
        self._found: dict[str, Table] = {}
        #: When each missing table was looked for, on the monotonic clock.
        self._missed: dict[str, float] = {}
        #: Why an existing table is not used, by its name.
        self._problems: dict[str, str] = {}

    def name(self, queue: str) -> str:
        """The name of a queue's table, whether or not there is one."""
        settings = self._account.settings
        return settings.table or settings.name_of(queue) + settings.table_suffix

    def declare(self, queue: str) -> None:
        """Note a queue."""
        self._queues[queue] = None

    def of(self, queue: str) -> Table | None:
        """The table of a queue; None if it has none that can be used."""
        self.declare(queue)
        name = self.name(queue)
        found = self._found.get(name)
        if found is not None:
            return found
        # Two threads may both look. A lock could be held for ever in the child of a fork.
        missed = self._missed.get(name)
        if missed is None or self._account.clock.monotonic() - missed >= LOOK_AGAIN_S:
            self._look(name, "" if self._account.settings.table else queue)
        return self._found.get(name)

    def known(self) -> list[Table]:
        """The tables of all known queues, each once."""
        tables = [self.of(queue) for queue in list(self._queues)]
        return list({table.name: table for table in tables if table is not None}.values())

    def problems(self) -> list[str]:
        """Why existing tables are not used, a sentence each."""
        return list(self._problems.values())

    def forget(self, name: str) -> None:
        """Look for a table again when it is next asked for."""
        self._found.pop(name, None)
        self._missed.pop(name, None)

    def _look(self, name: str, home: str) -> None:
        settings, problem = self._account.settings, None
        try:
            described = self._account.clients.dynamodb("describe_table", TableName=name)["Table"]
            if described.get("TableStatus", "ACTIVE") in ("ACTIVE", "UPDATING"):
                problem = problem_of(described)
                if problem is None:
                    local = any(each["IndexName"] == INDEX for each in described.get("LocalSecondaryIndexes", ()))
                    self._found[name] = Table(self._account, name, home, has_local_index=local)
            else:
                problem = self._problems.get(name)  # it is being made, or deleted
        except MissingError:
            # Most queues have none. Only a table that the URL names must exist.
            if settings.table:
                problem = (
                    f"There is no table {name}, which the URL names. Until there is, a job that is due in more than 15 "
                    "minutes is received and sent on every 15 minutes, delayed calls of keyed tasks are refused, no "
                    "queue can be paused, and workers are not listed; make it with `laneway aws create`."
                )
        except DeniedError as error:
            # An app that uses SQS alone may not be allowed to look.
            if settings.table or settings.table_suffix:
                problem = f"The table {name} cannot be looked at, so that no job waits in it: {error}"
        if name not in self._found:
            self._missed[name] = self._account.clock.monotonic()
        self._report(name, problem)

    def _report(self, name: str, problem: str | None) -> None:
        """Note the problem of a table. Log a new problem, and the end of one."""
        if problem is None:
            if self._problems.pop(name, None) is not None:
                _log.info("The table %s is there, and used from now on.", name)
        elif self._problems.get(name) != problem:
            self._problems[name] = problem
            _log.warning("%s", problem)


def problem_of(described: dict[str, Any]) -> str | None:
    """What keeps a table from being a waiter table, as a sentence; None for one that is."""
    name = described["TableName"]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in described.get("AttributeDefinitions", ())}
    if _keys(described) != ("scheduler", "job_id") or (kinds.get("scheduler"), kinds.get("job_id")) != ("S", "S"):
        return (
            f"The table {name} is not used for delayed jobs: its keys must be the texts scheduler (hash) and job_id "
            "(range). Make one with `laneway aws create`, or name another with table= or table_suffix= in the URL."
        )
    indexes = [*described.get("LocalSecondaryIndexes", ()), *described.get("GlobalSecondaryIndexes", ())]
    index = next((each for each in indexes if each["IndexName"] == INDEX), None)
    if (
        index is None
        or _keys(index) != ("scheduler", "perform_at")
        or kinds.get("perform_at") != "N"
        or index.get("Projection", {}).get("ProjectionType") != "ALL"
    ):
        return (
            f"The table {name} is not used for delayed jobs: it needs a local index {INDEX} on the text scheduler and "
            "the number perform_at that projects all attributes, and a local index can only be made with its table; "
            "make another with `laneway aws create`."
        )
    return None


def _keys(described: dict[str, Any]) -> tuple[str | None, str | None]:
    """The hash and the range key of a table or an index."""
    keys = {each["KeyType"]: each["AttributeName"] for each in described.get("KeySchema", ())}
    return keys.get("HASH"), keys.get("RANGE")
