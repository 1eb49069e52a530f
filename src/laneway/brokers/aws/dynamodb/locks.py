"""LockRows: locks that one process holds at a time: rows `lock:…` under `laneway`. They expire."""

from __future__ import annotations

from boto3.dynamodb.conditions import Attr

from .client import Expressions, RowClient


class LockRows:
    """The locks in a table."""

    def __init__(self, rows: RowClient) -> None:
        self._rows = rows

    def hold(self, lock: str, holder: str, now: float, seconds: float) -> bool:
        """Take a lock, or extend it. False: another holder has it. May be repeated."""
        free = Attr("claim").not_exists() | Attr("claim_until").lt(now) | Attr("claim").eq(holder)
        taken = Expressions().set(claim=holder, claim_until=now + seconds).when(free)
        return self._rows.update(("laneway", f"lock:{lock}"), taken)

    def release(self, lock: str, holder: str) -> None:
        """Release a lock, if this holder has it."""
        self._rows.delete(("laneway", f"lock:{lock}"), Attr("claim").eq(holder))
