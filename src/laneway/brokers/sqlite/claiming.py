"""The second half of a turn: handing out what is due. Its caller has the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...broker import Turn
from ...jobs.data import Claim, Headers, Kind, Payload
from ...jobs.merge import MAX_PAYLOADS
from .giving_back import give_back
from .queues import Queue, Sql, to_json

#: How many characters of payload a turn hands out: a thousand large bodies at once would fill a worker's memory.
CLAIM_CHARS = 16_000_000


_read_claims = msgspec.json.Decoder(list[Claim]).decode
_read_ids = msgspec.json.Decoder(list[int]).decode
_read_payloads = msgspec.json.Decoder(list[tuple[int, str, float, str, int, Headers | None, int]]).decode


def next_token(db: Any, sql: Sql, now: float) -> int:
    db.execute(sql["next_token"], {"microseconds": int(now * 1e6)})
    token: int = db.execute(sql["token"]).fetchone()[0]
    return token


def claim(
    db: Any, sql: Sql, queue: Queue, priorities: Sequence[int], worker: int, token: int, turn: Turn, now: float
) -> list[Claim]:
    """Hand out what is due, highest priority first."""
    if turn.limit <= 0 or queue.target or turn.epoch not in (0, queue.epoch):
        return []
    shards = range(queue.shards) if turn.shards is None else list(dict.fromkeys(turn.shards))
    values = {
        "queue": queue.id,
        "shards": to_json(list(shards)),
        "now": now,
        "worker": worker,
        "token": token,
        "chars": CLAIM_CHARS,
        "batch": turn.batch,
        "in_order": turn.in_order,
    }
    statement = sql["claim_batches" if turn.batch > 1 or turn.in_order else "claim"]
    left = turn.limit
    for priority in priorities:
        left -= db.execute(statement, {**values, "priority": priority, "limit": left}).rowcount
        if left <= 0:
            break
    if left == turn.limit:
        return []
    if (db.execute(sql["claimed_chars"], values).fetchone()[0] or 0) > CLAIM_CHARS:
        db.execute(sql["unclaim"], values)
    claims = _rows(db, sql, queue, worker, token)
    merged = [claim for claim in claims if claim.kind]
    if merged:
        idle = _run_payloads(db, sql, merged, turn, now)
        claims = [claim for claim in claims if claim.ref not in idle]
        _fill(db, sql, claims)
    return _in_order(claims, turn)


def claimed(db: Any, sql: Sql, queue: Queue, worker: int, token: int, turn: Turn) -> list[Claim]:
    """What a worker holds under a token."""
    claims = _rows(db, sql, queue, worker, token)
    _fill(db, sql, claims)
    return _in_order(claims, turn)


def _rows(db: Any, sql: Sql, queue: Queue, worker: int, token: int) -> list[Claim]:
    values = {"name": queue.name, "worker": worker, "token": token}
    return _read_claims(db.execute(sql["claimed"], values).fetchone()[0])


def _run_payloads(db: Any, sql: Sql, claims: list[Claim], turn: Turn, now: float) -> set[int]:
    """Have payloads of the claims run; returns those jobs that there was no room for."""
    for kind, statement in ((Kind.KEYED, "run_calls"), (Kind.COLLECTING, "run_values")):
        ids = [claim.ref for claim in claims if claim.kind is kind]
        if ids:
            most = turn.max_payloads or MAX_PAYLOADS[kind]
            db.execute(sql[statement], {"ids": to_json(ids), "now": now, "most": most})
    values = {"ids": to_json([claim.ref for claim in claims]), "chars": CLAIM_CHARS}
    idle: set[int] = set()
    if (db.execute(sql["running_chars"], values).fetchone()[0] or 0) > CLAIM_CHARS:
        db.execute(sql["stop_running"], values)
        idle = set(_read_ids(db.execute(sql["idle_claims"], values).fetchone()[0]))
        give_back(db, sql, list(idle), unstarted=True)
    db.execute(sql["leave_waiting"], {"ids": to_json([claim.ref for claim in claims if claim.ref not in idle])})
    return idle


def _fill(db: Any, sql: Sql, claims: Sequence[Claim]) -> None:
    """Give the claims of keyed and collecting jobs their payloads."""
    merged = {claim.ref: claim for claim in claims if claim.kind}
    if not merged:
        return
    for claim in merged.values():
        claim.payloads = []
    rows = db.execute(sql["running_payloads"], {"ids": to_json(list(merged))}).fetchone()[0]
    for ref, body, score, identity, attempt, headers, deaths in _read_payloads(rows):
        merged[ref].payloads.append(Payload(body, score, identity, attempt, headers, deaths))


def _in_order(claims: list[Claim], turn: Turn) -> list[Claim]:
    """The claims in the order in which they were taken; those of a batch stand together."""
    if turn.batch <= 1 and not turn.in_order:
        return claims
    places = {shard: place for place, shard in enumerate(dict.fromkeys(turn.shards or ()))}
    batches: dict[tuple[int, int], list[list[Claim]]] = {}
    for claim in claims:
        of_shard = batches.setdefault((-claim.priority, claim.shard), [])
        if not of_shard or len(of_shard[-1]) == turn.batch:
            of_shard.append([])
        of_shard[-1].append(claim)
    keyed: list[tuple[tuple[Any, ...], list[Claim]]] = []
    for (priority, shard), several in batches.items():
        for round, batch in enumerate(several):
            order = (round, places.get(shard, shard)) if turn.in_order else (batch[0].perform_at, batch[0].ref)
            keyed.append(((priority, *order), batch))
    keyed.sort(key=lambda pair: pair[0])
    return [claim for _, batch in keyed for claim in batch]
