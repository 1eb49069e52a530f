"""The two halves of a turn: settling what is finished, and claiming what is next. Its caller has the transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...broker import Turn
from ...job import Claim, NewJob
from ...outcome import Settlement
from ..common import again_at, storable
from .storing import Queue, to_json

Sql = Mapping[str, str]

#: How many characters of payload a turn hands out: a thousand large bodies at once would fill a worker's memory.
CLAIM_CHARS = 16_000_000

_read_claims = msgspec.json.Decoder(list[Claim]).decode
_read_ids = msgspec.json.Decoder(list[int]).decode


class Settled(msgspec.Struct):
    """What came of a turn's settlements."""

    #: Keys whose claim belongs to somebody else by now.
    refused: list[str] = []
    #: What the runs that are done have enqueued; the caller stores it in the same transaction.
    outbox: list[NewJob] = []
    #: Whether anything waits now that did not before.
    waits: bool = False


def next_token(db: Any, sql: Sql, now: float) -> int:
    db.execute(sql["next_token"], {"microseconds": int(now * 1e6)})
    token: int = db.execute(sql["token"]).fetchone()[0]
    return token


def settle(db: Any, sql: Sql, queue: Queue, settlements: Sequence[Settlement], now: float) -> Settled:
    """Record the ends of runs whose claim still holds."""
    settled = Settled()
    gone: list[int] = []
    back: list[int] = []
    processed = failed = again = 0
    for settlement in _still_held(db, sql, settlements, settled.refused):
        ref, verdict = settlement.claim.ref, settlement.verdict
        if verdict == "done":
            gone.append(ref)
            processed += 1
            settled.outbox += settlement.outbox or ()
        elif verdict == "release":
            back.append(ref)
        else:
            again += 1
            failed += verdict != "postpone"
            values = {
                "id": ref,
                "perform_at": again_at(now, settlement.delay_s),
                "retry_count": settlement.retry_count,
                "error": storable(settlement.error),
                "now": now,
            }
            db.execute(sql[f"settle_{verdict}"], values)
            if verdict == "bury":
                gone.append(ref)
    if gone:
        db.execute(sql["settle_done"], {"ids": to_json(gone)})
    if back:
        db.execute(sql["settle_release"], {"ids": to_json(back)})
    if processed or failed:
        db.execute(sql["count_runs"], {"queue": queue.id, "processed": processed, "failed": failed})
    settled.waits = bool(settled.outbox or back or again)
    return settled


def _still_held(db: Any, sql: Sql, settlements: Sequence[Settlement], refused: list[str]) -> list[Settlement]:
    """The settlements whose claim still holds; the keys of all others are added to `refused`."""
    by_token: dict[int, list[Settlement]] = {}
    for settlement in settlements:
        by_token.setdefault(settlement.claim.token, []).append(settlement)
    good: list[Settlement] = []
    for token, group in by_token.items():
        ids = to_json([settlement.claim.ref for settlement in group])
        held = set(_read_ids(db.execute(sql["still_held"], {"ids": ids, "token": token}).fetchone()[0]))
        for settlement in group:
            if settlement.claim.ref in held:
                held.discard(settlement.claim.ref)  # the same claim twice in one turn is settled once
                good.append(settlement)
            else:
                refused.append(settlement.claim.key)
    return good


def claim(
    db: Any, sql: Sql, queue: Queue, priorities: Sequence[int], worker: int, token: int, turn: Turn, now: float
) -> list[Claim]:
    """Hand out what is due, highest priority first."""
    if turn.limit <= 0:
        return []
    shards = range(queue.shards) if turn.shards is None else set(turn.shards)
    values = {
        "queue": queue.id,
        "shards": to_json(list(shards)),
        "now": now,
        "worker": worker,
        "token": token,
        "chars": CLAIM_CHARS,
    }
    left = turn.limit
    for priority in priorities:
        left -= db.execute(sql["claim"], {**values, "priority": priority, "limit": left}).rowcount
        if left <= 0:
            break
    if left == turn.limit:
        return []
    if (db.execute(sql["claimed_chars"], values).fetchone()[0] or 0) > CLAIM_CHARS:
        db.execute(sql["unclaim"], values)
    return claimed(db, sql, queue, worker, token)


def claimed(db: Any, sql: Sql, queue: Queue, worker: int, token: int) -> list[Claim]:
    """What a worker holds under a token."""
    values = {"name": queue.name, "worker": worker, "token": token}
    return _read_claims(db.execute(sql["claimed"], values).fetchone()[0])
