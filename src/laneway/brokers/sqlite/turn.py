"""Both halves of a turn: settles finished claims, claims due jobs; and gives claims back.

The first half records the ends of runs whose claim the worker still holds, and refuses all other settlements. The
second half hands out due jobs. Claims that no worker settles go back to the queue: released by the worker, never
received by it, or held by a dead worker. The caller holds the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ...broker import Turn
from ...jobs.data import Claim, Headers, Kind, NewJob, Payload, StartedRun
from ...jobs.merge import MAX_PAYLOADS
from ...jobs.settlement import Settlement
from ..shared import again_at, storable
from .queues import QueueRow, Sql, to_json


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


def count_deaths(db: Any, sql: Sql, worker: int, died: Collection[StartedRun]) -> None:
    """The process of a worker has died: count that for those of its claims that were being run."""
    for started in dict.fromkeys(died):
        values = {"queue": started.queue, "key": started.key, "worker": worker, "token": started.token}
        if (row := db.execute(sql["held_by"], values).fetchone()) is None:
            continue
        statement = "count_call_death" if row[1] == Kind.KEYED else "count_death"
        db.execute(sql[statement], {"id": row[0], "identity": started.identity})


_read_ids = msgspec.json.Decoder(list[int]).decode


class SettleResult(msgspec.Struct):
    """What came of a turn's settlements."""

    #: Keys whose claim belongs to somebody else by now.
    refused: list[str] = []
    #: What the runs have enqueued; the caller stores it in the same transaction.
    outbox: list[NewJob] = []
    #: Whether anything waits now that did not before.
    waits: bool = False


def settle(
    db: Any, sql: Sql, queue: QueueRow, worker: int, settlements: Sequence[Settlement], now: float
) -> SettleResult:
    """Record the ends of runs whose claim still holds."""
    settled = SettleResult()
    gone: list[int] = []
    ran: list[int] = []
    back: list[int] = []
    processed = failed = again = 0
    for settlement in _still_held(db, sql, worker, settlements, settled.refused):
        claim, verdict = settlement.claim, settlement.verdict
        settled.outbox += settlement.outbox or ()
        processed += verdict == "done" or settlement.done > 0
        failed += verdict in ("retry", "bury")
        if verdict == "done":
            (ran if claim.kind else gone).append(claim.ref)
        elif verdict == "release" and not (claim.kind and settlement.done):
            back.append(claim.ref)
        elif claim.kind:
            again += 1
            _settle_merged(db, sql, settlement, now)
        else:
            again += 1
            db.execute(sql[f"settle_{verdict}"], _values(settlement, now))
            if verdict == "bury":
                gone.append(claim.ref)
    if gone:
        db.execute(sql["settle_done"], {"ids": to_json(gone)})
    waits = bool(ran) and _ran(db, sql, ran)
    give_back(db, sql, back, unstarted=True)
    if processed or failed:
        db.execute(sql["count_runs"], {"queue": queue.id, "processed": processed, "failed": failed})
    settled.waits = bool(settled.outbox or back or again or waits)
    return settled


def _values(settlement: Settlement, now: float) -> dict[str, Any]:
    return {
        "id": settlement.claim.ref,
        "perform_at": again_at(now, settlement.delay_s),
        "retry_count": settlement.retry_count,
        "error": storable(settlement.error),
        "died": settlement.died,
        "now": now,
    }


def _ran(db: Any, sql: Sql, ids: list[int]) -> bool:
    """Keyed and collecting jobs whose payloads are all finished. Returns whether more of some waits."""
    values = {"ids": to_json(ids)}
    db.execute(sql["settle_ran"], values)
    if db.execute(sql["settle_empty"], values).rowcount == len(ids):
        return False
    db.execute(sql["settle_next"], values)
    return True


def _settle_merged(db: Any, sql: Sql, settlement: Settlement, now: float) -> None:
    """A keyed or collecting job of which something is left: to be run again, buried or given back."""
    claim, verdict = settlement.claim, settlement.verdict
    values = _values(settlement, now)
    identities = [payload.identity for payload in claim.payloads]
    finished, rest = identities[: settlement.done], identities[settlement.done :]
    if not rest:
        _ran(db, sql, [claim.ref])
        return
    if finished:
        db.execute(sql["finish_payloads"], {"id": claim.ref, "identities": to_json(finished)})
    started = rest[: max(settlement.buried, 1)] if verdict != "release" else []
    if settlement.died and started and claim.kind is Kind.KEYED:
        db.execute(sql["count_call_death"], {"id": claim.ref, "identity": rest[0]})
        values["died"] = False  # its calls have their own counts
    if claim.kind is Kind.KEYED:
        db.execute(sql["uncount_payloads"], {"id": claim.ref, "started": to_json(started)})
    if verdict == "bury":
        bury(db, sql, values, claim.kind, started, place=1)
    elif claim.kind is Kind.KEYED and verdict != "release":
        db.execute(sql["set_head"], {"id": claim.ref, "identity": rest[0]})
    payloads_back(db, sql, {"ids": to_json([claim.ref]), "unstarted": 0})
    if verdict in ("bury", "release"):
        what_is_left(db, sql, values)
        return
    if verdict == "postpone" and not finished:
        values["error"] = claim.error  # it stays until the job succeeds
    db.execute(sql["settle_again"], values)


def bury(db: Any, sql: Sql, values: dict[str, Any], kind: Kind, identities: Sequence[str], *, place: int) -> None:
    """Running or queued → dead: some payloads of a keyed or collecting job. They merge with those that are dead."""
    id = values["id"]
    queue, key = db.execute(sql["key_of"], {"id": id}).fetchone()
    where = {"queue": queue, "key": key}
    db.execute(sql["plain_dead_as_payload"], where)
    db.execute(sql["settle_bury"], values)
    (morgue, _) = db.execute(sql["dead_at"], where).fetchone()
    if kind is Kind.KEYED and identities:
        db.execute(sql["bury_attempt"], {"morgue": morgue, "id": id, "place": place, "identity": identities[-1]})
    lifted = {"id": id, "kind": kind, "place": place, "identities": to_json(list(identities))}
    db.execute(sql["lift"], lifted)
    lower(db, sql, id, to=morgue, place=2)


def lower(db: Any, sql: Sql, id: int, *, to: int, place: int) -> None:
    """Put payloads that were lifted from the row `id` down at the row `to`: equal ones become one."""
    values = {"id": id, "to": to, "place": place}
    for step in ("lower_smaller", "lower_equal", "lower_rest"):
        db.execute(sql[step], values)


def what_is_left(db: Any, sql: Sql, values: dict[str, Any]) -> None:
    """A job of which something was buried, finished or deleted: gone, or queued like a new one."""
    if not db.execute(sql["without_payloads"], values).rowcount:
        db.execute(sql["settle_rest"], values)


def _still_held(
    db: Any, sql: Sql, worker: int, settlements: Sequence[Settlement], refused: list[str]
) -> list[Settlement]:
    """The settlements whose claim the worker still holds; the keys of all others are added to `refused`."""
    by_token: dict[int, list[Settlement]] = {}
    for settlement in settlements:
        by_token.setdefault(settlement.claim.token, []).append(settlement)
    good: list[Settlement] = []
    for token, group in by_token.items():
        ids = to_json([settlement.claim.ref for settlement in group])
        values = {"ids": ids, "token": token, "worker": worker}
        held = set(_read_ids(db.execute(sql["still_held"], values).fetchone()[0]))
        for settlement in group:
            if settlement.claim.ref in held:
                held.discard(settlement.claim.ref)  # the same claim twice in one turn is settled once
                good.append(settlement)
            else:
                refused.append(settlement.claim.key)
    return good


#: How many characters of payload a turn hands out: a thousand large bodies at once would fill a worker's memory.
CLAIM_CHARS = 16_000_000

_read_claims = msgspec.json.Decoder(list[Claim]).decode
_read_payloads = msgspec.json.Decoder(list[tuple[int, str, float, str, int, Headers | None, int]]).decode


def next_token(db: Any, sql: Sql, now: float) -> int:
    db.execute(sql["next_token"], {"microseconds": int(now * 1e6)})
    token: int = db.execute(sql["token"]).fetchone()[0]
    return token


def claim(
    db: Any, sql: Sql, queue: QueueRow, priorities: Sequence[int], worker: int, token: int, turn: Turn, now: float
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


def claimed(db: Any, sql: Sql, queue: QueueRow, worker: int, token: int, turn: Turn) -> list[Claim]:
    """What a worker holds under a token."""
    claims = _rows(db, sql, queue, worker, token)
    _fill(db, sql, claims)
    return _in_order(claims, turn)


def _rows(db: Any, sql: Sql, queue: QueueRow, worker: int, token: int) -> list[Claim]:
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
