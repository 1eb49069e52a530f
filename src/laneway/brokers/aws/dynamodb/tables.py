"""Tables: finds the waiter table of a queue. `delayed_jobs` owns the contents.

Either all queues share a table, or each queue uses the table of its name if that exists. A table that was found is
used until a request reports it as gone. A missing table is looked for again after a minute, so that a table which is
created later is found.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..errors import DeniedError, MissingError
from ..settings import LOOK_AGAIN_S
from .delayed_jobs import Table
from .items import INDEX, sqs_name

if TYPE_CHECKING:
    from ..account import Account

_log = logging.getLogger("laneway")


class Tables:
    """The waiter tables of the queues that somebody has asked for."""

    def __init__(self, account: Account) -> None:
        self._clients = account.clients
        self._settings = account.settings
        self._clock = account.clock
        self._queues: dict[str, None] = {}
        self._found: dict[str, Table] = {}
        #: When each that was not found was looked for, on the monotonic clock.
        self._missed: dict[str, float] = {}
        #: Why a table that there is is not used, by its name.
        self._problems: dict[str, str] = {}

    def name(self, queue: str) -> str:
        """The name of a queue's table, whether or not there is one."""
        return self._settings.table or sqs_name(self._settings, queue) + self._settings.table_suffix

    @property
    def keeps_records(self) -> bool:
        """Whether it is to be kept how jobs end."""
        return self._settings.records

    def declare(self, queue: str) -> None:
        """Take note of a queue."""
        self._queues[queue] = None

    def of(self, queue: str) -> Table | None:
        """The table of a queue; None if it has none that can be used."""
        self.declare(queue)
        name = self.name(queue)
        found = self._found.get(name)
        if found is not None:
            return found
        # Two threads may both look; a lock would be held by nobody in the child of a fork.
        missed = self._missed.get(name)
        if missed is None or self._clock.monotonic() - missed >= LOOK_AGAIN_S:
            self._look(name, "" if self._settings.table else queue)
        return self._found.get(name)

    def known(self) -> list[Table]:
        """The tables of all queues that are known, each once."""
        tables = [self.of(queue) for queue in list(self._queues)]
        return list({table.name: table for table in tables if table is not None}.values())

    def problems(self) -> list[str]:
        """Why tables that there are are not used, a sentence each."""
        return list(self._problems.values())

    def forget(self, name: str) -> None:
        """Look for a table anew the next time that it is wanted."""
        self._found.pop(name, None)
        self._missed.pop(name, None)

    def _look(self, name: str, home: str) -> None:
        problem = None
        try:
            described = self._clients.dynamodb("describe_table", TableName=name)["Table"]
            if described.get("TableStatus", "ACTIVE") in ("ACTIVE", "UPDATING"):
                problem = problem_of(described)
                if problem is None:
                    self._found[name] = self._table(name, home, described)
            else:
                problem = self._problems.get(name)  # it is being made, or deleted
        except MissingError:
            # Most queues have none. Only a table that somebody named must be there.
            if self._settings.table:
                problem = (
                    f"There is no table {name}, which the URL names. Until there is, a job that is due in more than 15 "
                    "minutes is received and sent on every 15 minutes, delayed calls of keyed tasks are refused, no "
                    "queue can be paused, and workers are not listed; make it with `laneway aws create`."
                )
        except DeniedError as error:
            # Whoever uses SQS alone may not be allowed to look.
            if self._settings.table or self._settings.table_suffix:
                problem = f"The table {name} cannot be looked at, so that no job waits in it: {error}"
        if name not in self._found:
            self._missed[name] = self._clock.monotonic()
        self._report(name, problem)

    def _report(self, name: str, problem: str | None) -> None:
        """Keep what is wrong with a table, and say it, unless it was said."""
        if problem is None:
            if self._problems.pop(name, None) is not None:
                _log.info("The table %s is there, and used from now on.", name)
        elif self._problems.get(name) != problem:
            self._problems[name] = problem
            _log.warning("%s", problem)

    def _table(self, name: str, home: str, described: dict[str, Any]) -> Table:
        local = any(each["IndexName"] == INDEX for each in described.get("LocalSecondaryIndexes", ()))
        return Table(
            name,
            self._clients,
            self._settings,
            self._clock,
            home=home,
            consistent=local,
            on_missing=lambda: self.forget(name),
        )


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
