"""Running → queued for claims that nobody settles: released, never received, or of the dead. Its caller has the
transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...jobs.data import Kind, Started
from .queues import Sql, to_json


def give_back(db: Any, sql: Sql, ids: Sequence[int], *, unstarted: bool) -> None:
    """Put claimed jobs back as they were; `unstarted` takes back that they were handed out."""
    if not ids:
        return
    values = {"ids": to_json(ids), "unstarted": int(unstarted)}
    payloads_back(db, sql, values)
    db.execute(sql["back_jobs"], values)


def payloads_back(db: Any, sql: Sql, values: dict[str, Any]) -> None:
    """What runs of the jobs `ids` joins what is queued of them: equal payloads become one, with the smaller score."""
    db.execute(sql["back_smaller"], values)
    db.execute(sql["back_equal"], values)
    db.execute(sql["back_rest"], values)


def count_deaths(db: Any, sql: Sql, worker: int, died: Collection[Started]) -> None:
    """The process of a worker has died: count that for those of its claims that were being run."""
    for started in dict.fromkeys(died):
        values = {"queue": started.queue, "key": started.key, "worker": worker, "token": started.token}
        if (row := db.execute(sql["held_by"], values).fetchone()) is None:
            continue
        statement = "count_call_death" if row[1] == Kind.KEYED else "count_death"
        db.execute(sql[statement], {"id": row[0], "identity": started.identity})
