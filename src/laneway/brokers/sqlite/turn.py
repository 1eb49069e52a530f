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
from .database import Transaction
from .queues import QueueRow, to_json


def give_back(tx: Transaction, ids: Sequence[int], *, unstarted: bool) -> None:
    """Put claimed jobs back as they were; `unstarted` takes back that they were handed out."""
    if not ids:
        return
    values = {"ids": to_json(ids), "unstarted": int(unstarted)}
    payloads_back(tx, values)
    tx.run("back_jobs", **values)


def payloads_back(tx: Transaction, values: dict[str, Any]) -> None:
    """What runs of the jobs `ids` joins what is queued of them: equal payloads become one, with the smaller score."""
    tx.run("back_smaller", **values)
    tx.run("back_equal", **values)
    tx.run("back_rest", **values)


def count_deaths(tx: Transaction, worker: int, died: Collection[StartedRun]) -> None:
    """The process of a worker has died: count that for those of its claims that were being run."""
    for started in dict.fromkeys(died):
        row = tx.one("held_by", queue=started.queue, key=started.key, worker=worker, token=started.token)
        if row is None:
            continue
        statement = "count_call_death" if row[1] == Kind.KEYED else "count_death"
        tx.run(statement, id=row[0], identity=started.identity)


_read_ids = msgspec.json.Decoder(list[int]).decode


class SettleResult(msgspec.Struct):
    """What came of a turn's settlements."""

    #: Keys whose claim another worker holds by now.
    refused: list[str] = []
    #: What the runs have enqueued; the caller stores it in the same transaction.
    outbox: list[NewJob] = []
    #: Whether anything waits now that did not before.
    waits: bool = False


def settle(
    tx: Transaction, queue: QueueRow, worker: int, settlements: Sequence[Settlement], now: float
) -> SettleResult:
    """Record the ends of runs whose claim still holds."""
    settled = SettleResult()
    gone: list[int] = []
    ran: list[int] = []
    back: list[int] = []
    processed = failed = again = 0
    for settlement in _still_held(tx, worker, settlements, settled.refused):
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
            _settle_merged(tx, settlement, now)
        else:
            again += 1
            tx.run(f"settle_{verdict}", **_values(settlement, now))
            if verdict == "bury":
                gone.append(claim.ref)
    if gone:
        tx.run("settle_done", ids=to_json(gone))
    waits = bool(ran) and _ran(tx, ran)
    give_back(tx, back, unstarted=True)
    if processed or failed:
        tx.run("count_runs", queue=queue.id, processed=processed, failed=failed)
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


def _ran(tx: Transaction, ids: list[int]) -> bool:
    """Keyed and collecting jobs whose payloads are all finished. Returns whether more of some waits."""
    values = {"ids": to_json(ids)}
    tx.run("settle_ran", **values)
    if tx.run("settle_empty", **values).rowcount == len(ids):
        return False
    tx.run("settle_next", **values)
    return True


def _settle_merged(tx: Transaction, settlement: Settlement, now: float) -> None:
    """A keyed or collecting job of which something is left: to be run again, buried or given back."""
    claim, verdict = settlement.claim, settlement.verdict
    values = _values(settlement, now)
    identities = [payload.identity for payload in claim.payloads]
    finished, rest = identities[: settlement.done], identities[settlement.done :]
    if not rest:
        _ran(tx, [claim.ref])
        return
    if finished:
        tx.run("finish_payloads", id=claim.ref, identities=to_json(finished))
    started = rest[: max(settlement.buried, 1)] if verdict != "release" else []
    if settlement.died and started and claim.kind is Kind.KEYED:
        tx.run("count_call_death", id=claim.ref, identity=rest[0])
        values["died"] = False  # its calls have their own counts
    if claim.kind is Kind.KEYED:
        tx.run("uncount_payloads", id=claim.ref, started=to_json(started))
    if verdict == "bury":
        bury(tx, values, claim.kind, started, place=1)
    elif claim.kind is Kind.KEYED and verdict != "release":
        tx.run("set_head", id=claim.ref, identity=rest[0])
    payloads_back(tx, {"ids": to_json([claim.ref]), "unstarted": 0})
    if verdict in ("bury", "release"):
        what_is_left(tx, values)
        return
    if verdict == "postpone" and not finished:
        values["error"] = claim.error  # it stays until the job succeeds
    tx.run("settle_again", **values)


def bury(tx: Transaction, values: dict[str, Any], kind: Kind, identities: Sequence[str], *, place: int) -> None:
    """Running or queued → dead: some payloads of a keyed or collecting job. They merge with those that are dead."""
    id = values["id"]
    queue, key = tx.one("key_of", id=id)
    where = {"queue": queue, "key": key}
    tx.run("plain_dead_as_payload", **where)
    tx.run("settle_bury", **values)
    (morgue, _) = tx.one("dead_at", **where)
    if kind is Kind.KEYED and identities:
        tx.run("bury_attempt", morgue=morgue, id=id, place=place, identity=identities[-1])
    tx.run("lift", id=id, kind=kind, place=place, identities=to_json(list(identities)))
    lower(tx, id, to=morgue, place=2)


def lower(tx: Transaction, id: int, *, to: int, place: int) -> None:
    """Put payloads that were lifted from the row `id` down at the row `to`: equal ones become one."""
    for step in ("lower_smaller", "lower_equal", "lower_rest"):
        tx.run(step, id=id, to=to, place=place)


def what_is_left(tx: Transaction, values: dict[str, Any]) -> None:
    """A job of which something was buried, finished or deleted: gone, or queued like a new one."""
    if not tx.run("without_payloads", **values).rowcount:
        tx.run("settle_rest", **values)


def _still_held(
    tx: Transaction, worker: int, settlements: Sequence[Settlement], refused: list[str]
) -> list[Settlement]:
    """The settlements whose claim the worker still holds; the keys of all others are added to `refused`."""
    by_token: dict[int, list[Settlement]] = {}
    for settlement in settlements:
        by_token.setdefault(settlement.claim.token, []).append(settlement)
    good: list[Settlement] = []
    for token, group in by_token.items():
        ids = to_json([settlement.claim.ref for settlement in group])
        held = set(_read_ids(tx.value("still_held", ids=ids, token=token, worker=worker)))
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


def next_token(tx: Transaction, now: float) -> int:
    tx.run("next_token", microseconds=int(now * 1e6))
    token: int = tx.value("token")
    return token


def claim(
    tx: Transaction, queue: QueueRow, priorities: Sequence[int], worker: int, token: int, turn: Turn, now: float
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
    statement = "claim_batches" if turn.batch > 1 or turn.in_order else "claim"
    left = turn.limit
    for priority in priorities:
        left -= tx.run(statement, **values, priority=priority, limit=left).rowcount
        if left <= 0:
            break
    if left == turn.limit:
        return []
    if (tx.value("claimed_chars", **values) or 0) > CLAIM_CHARS:
        tx.run("unclaim", **values)
    claims = _rows(tx, queue, worker, token)
    merged = [claim for claim in claims if claim.kind]
    if merged:
        idle = _run_payloads(tx, merged, turn, now)
        claims = [claim for claim in claims if claim.ref not in idle]
        _fill(tx, claims)
    return _in_order(claims, turn)


def claimed(tx: Transaction, queue: QueueRow, worker: int, token: int, turn: Turn) -> list[Claim]:
    """What a worker holds under a token."""
    claims = _rows(tx, queue, worker, token)
    _fill(tx, claims)
    return _in_order(claims, turn)


def _rows(tx: Transaction, queue: QueueRow, worker: int, token: int) -> list[Claim]:
    return _read_claims(tx.value("claimed", name=queue.name, worker=worker, token=token))


def _run_payloads(tx: Transaction, claims: list[Claim], turn: Turn, now: float) -> set[int]:
    """Have payloads of the claims run; returns those jobs that there was no room for."""
    for kind, statement in ((Kind.KEYED, "run_calls"), (Kind.COLLECTING, "run_values")):
        ids = [claim.ref for claim in claims if claim.kind is kind]
        if ids:
            most = turn.max_payloads or MAX_PAYLOADS[kind]
            tx.run(statement, ids=to_json(ids), now=now, most=most)
    values = {"ids": to_json([claim.ref for claim in claims]), "chars": CLAIM_CHARS}
    idle: set[int] = set()
    if (tx.value("running_chars", **values) or 0) > CLAIM_CHARS:
        tx.run("stop_running", **values)
        idle = set(_read_ids(tx.value("idle_claims", **values)))
        give_back(tx, list(idle), unstarted=True)
    tx.run("leave_waiting", ids=to_json([claim.ref for claim in claims if claim.ref not in idle]))
    return idle


def _fill(tx: Transaction, claims: Sequence[Claim]) -> None:
    """Give the claims of keyed and collecting jobs their payloads."""
    merged = {claim.ref: claim for claim in claims if claim.kind}
    if not merged:
        return
    for claim in merged.values():
        claim.payloads = []
    rows = tx.value("running_payloads", ids=to_json(list(merged)))
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
