"""Running → queued for claims that nobody settles: released, never received, or of the dead. Its caller has the
transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
