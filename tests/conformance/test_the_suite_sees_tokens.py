"""The conformance suite detects an unchecked token, even if the claim's holder is checked. On every broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from laneway.brokers.redis import RedisBroker, script
from laneway.brokers.redis.client.server import Server
from laneway.brokers.sqlite import SQLiteBroker
from laneway.clock import Clock
from laneway.jobs.data import Kind, StartedRun
from laneway.jobs.settlement import Settlement
from tests.conformance.suite_check import check_seen
from tests.support.second_broker import SecondBroker
from tests.support.servers import RedisServer

pytestmark = pytest.mark.conformance

SETTLING = "test_a_worker_cannot_settle_its_second_claim_under_the_first_token"
RENEWING = "test_the_token_of_a_claim_that_was_given_back_keeps_no_later_one"
BLAMING = "test_what_is_not_held_is_not_blamed"


def check(broken: Callable[[Clock], Any], test: str) -> None:
    if test == SETTLING:
        for kind in Kind:
            check_seen(broken, test, kind=kind, back="renewed without it")
    else:
        check_seen(broken, test)


class Settles(SecondBroker):
    """Looks at who holds a key, and not at the token."""

    def _still_held(self, worker: Any, settlements: Iterable[Settlement]) -> Any:
        for settlement in settlements:
            if job := worker.claims.get(settlement.claim.ref):
                settlement.claim = msgspec.structs.replace(settlement.claim, token=job.token)
        return super()._still_held(worker, settlements)


class Renews(SecondBroker):
    """Takes any token for that of what is held."""

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        super().renew(worker, [job.token for job in self._workers[worker].claims.values()] if held else [], before)


class Blames(SecondBroker):
    """Counts a death under any token."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        held = {(job.queue, job.key): job.token for job in self._workers[worker].claims.values()}
        return super().leave(
            worker, [msgspec.structs.replace(each, token=held.get((each.queue, each.key), each.token)) for each in died]
        )


@pytest.mark.parametrize(("broken", "test"), [(Settles, SETTLING), (Renews, RENEWING), (Blames, BLAMING)])
def test_in_memory(broken: Callable[[Clock], Any], test: str) -> None:
    check(broken, test)


#: A statement, what stands in it, what stands in it instead, and the test that sees it.
STATEMENTS = [
    ("still_held", "AND token = :token", "AND :token > 0", SETTLING),
    ("claims_unknown", "token NOT IN (SELECT value FROM json_each(:held))", "json_array_length(:held) = 0", RENEWING),
    ("held_by", "AND j.token = :token", "AND :token > 0", BLAMING),
]


@pytest.mark.parametrize(("name", "right", "wrong", "test"), STATEMENTS)
def test_on_sqlite(name: str, right: str, wrong: str, test: str, tmp_path: Path) -> None:
    opened: list[SQLiteBroker] = []

    def broken(clock: Clock) -> SQLiteBroker:
        broker = SQLiteBroker(tmp_path / f"{len(opened)}.db", clock=clock)
        statements = broker._db.statements
        assert statements[name].count(right) == 1, f"{name} is not what it was"
        broker._db.statements = {**statements, name: statements[name].replace(right, wrong)}
        opened.append(broker)
        return broker

    try:
        check(broken, test)
    finally:
        for broker in opened:
            broker.close()


#: A file, what stands in it, what stands in it instead, and the test that sees it.
SCRIPTS = [
    ("parts/turning.lua", "job.worker == worker and job.token == settlement[2]", "job.worker == worker", SETTLING),
    ("parts/turning.lua", "blob:sub(1, #held_by) ~= held_by", "blob:sub(8, #held_by) ~= held_by:sub(8)", SETTLING),
    ("give_back.lua", "if not is_held[tonumber(found[j + 1])] then", "if not next(is_held) then", RENEWING),
    ("give_back.lua", "job.worker == worker and job.token == died[3]", "job.worker == worker", BLAMING),
]


@pytest.fixture
def script_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the scripts, which the broker reads instead."""
    folder = tmp_path / "scripts"
    shutil.copytree(script._FOLDER, folder)
    monkeypatch.setattr(script, "_FOLDER", folder)
    script.load.cache_clear()
    yield folder
    script.load.cache_clear()


@pytest.mark.parametrize("redis_server", ["valkey"], indirect=True)
@pytest.mark.parametrize(("name", "right", "wrong", "test"), SCRIPTS)
def test_on_redis(name: str, right: str, wrong: str, test: str, script_folder: Path, redis_server: RedisServer) -> None:
    text = (script_folder / name).read_text()
    assert text.count(right) == 1, f"{name} is not what it was"
    (script_folder / name).write_text(text.replace(right, wrong))
    with redis_server.client() as client:

        def broken(clock: Clock) -> RedisBroker:
            client.flushall()
            return RedisBroker(Server.of(client), clock=clock)

        check(broken, test)
