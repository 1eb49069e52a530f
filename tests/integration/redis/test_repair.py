"""Tests of finding and repairing damage to the jobs in Redis; a repair throws no stored payload away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import Server
from laneway.clock import ManualClock
from laneway.jobs.data import JobView
from laneway.jobs.settlement import buried, failed
from laneway.testing.conformance.fixtures import (
    ScriptedWorker,
    bodies,
    calls,
    job,
    keys,
    numbers,
    only,
    places,
    put,
    values,
)
from tests.support.findings import check_texts
from tests.support.servers import RedisServer

#: What the keys of the queue below begin with, and where its one shard has its list and its index.
ROOT = "{laneway:q:0}"
READY, DUE = "ready:1/1:0", "due:1/1:0"
Harm = Callable[[Any], object]


@pytest.fixture
def broker(redis_server: RedisServer, clock: ManualClock) -> Iterator[RedisBroker]:
    broker = RedisBroker(Server.of(redis.Redis(port=redis_server.port)), clock=clock)
    broker.declare("q", 1)
    yield broker
    broker.close()


@pytest.fixture
def hand(broker: RedisBroker) -> ScriptedWorker:
    """A worker that has seen to it that there is a job of every kind in every place."""
    hand = ScriptedWorker(broker)
    calls(broker, "dead", "1", "2")
    values(broker, "dead-values", {"a": 1.0, "b": 2.0})
    put(broker, "dead-plain")
    hand.settle(*(replace(buried(claim, "no"), buried=len(claim.payloads)) for claim in hand.claim()))
    calls(broker, "failed", "1", "2")
    put(broker, "failed-plain")
    hand.settle(*(failed(claim, "no", 5, 60.0) for claim in hand.claim()))
    calls(broker, "runs", "1")
    values(broker, "runs-values", {"a": 1.0})
    assert len(hand.claim()) == 2
    calls(broker, "runs", "2", "3")
    values(broker, "runs-values", {"b": 2.0})
    put(broker, "ready", "ready-2")
    put(broker, "urgent", priority=7)
    put(broker, "later", delay_s=100)
    calls(broker, "several", "1", "2")
    values(broker, "values", {"a": 1.0, "b": 2.0})
    broker.inspect.listing("q", "queued", order="key")  # there is an index of keys from now on
    return hand


NAMES = (
    "dead",
    "dead-values",
    "dead-plain",
    "failed",
    "failed-plain",
    "runs",
    "runs-values",
    "ready",
    "ready-2",
    "urgent",
)
NAMES += ("later", "several", "values")


def everything(broker: RedisBroker) -> dict[str, list[JobView]]:
    return {name: broker.inspect.find("q", name) for name in NAMES}


def remove(index: str, key: str) -> Harm:
    """Take a key out of an index, whatever its entry looks like."""

    def harm(client: Any) -> None:
        entries = [entry for entry in client.zrange(f"{ROOT}:{index}", 0, -1) if entry.endswith(key.encode())]
        assert len(entries) == 1
        client.zrem(f"{ROOT}:{index}", *entries)

    return harm


def sentence(what: str, number: int = 1) -> list[str]:
    return [f"{what}: {number}; mend it with laneway check --repair."]


def test_all_is_well(broker: RedisBroker, hand: ScriptedWorker) -> None:
    assert (broker.health.check(), broker.health.repair(), broker.health.check()) == ([], [], [])


@pytest.mark.parametrize(
    "harm",
    [
        remove(DUE, "later"),
        remove(f"{DUE}:7", "urgent"),
        remove("keys", "ready"),
        remove("keys", "several"),
        remove("failed", "failed"),
        remove("failures", "failed"),
        remove("fkeys", "failed-plain"),
        remove("aside", "runs"),
        remove("dead", "dead"),
        remove("dkeys", "dead-values"),
        lambda client: client.hdel(f"{ROOT}:meta", "levels"),
        lambda client: client.lpop(f"{ROOT}:{READY}"),
        lambda client: client.zadd(f"{ROOT}:aside", {"runs": 1.0}),
    ],
)
def test_jobs_are_put_into_their_indices(broker: RedisBroker, hand: ScriptedWorker, client: Any, harm: Harm) -> None:
    before = everything(broker)
    harm(client)
    assert check_texts(broker) == sentence("Jobs that are not in all their indices")
    assert broker.health.repair() == ["Jobs put into all their indices: 1."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert everything(broker) == before
    assert sorted(keys(hand.claim())) == ["ready", "ready-2", "several", "urgent", "values"]


@pytest.mark.parametrize("index", [DUE, f"{DUE}:7", "keys", "failed", "failures", "fkeys", "aside", "dead", "dkeys"])
def test_entries_without_a_job_are_removed(broker: RedisBroker, hand: ScriptedWorker, client: Any, index: str) -> None:
    before = everything(broker)
    client.zadd(f"{ROOT}:{index}", {b"0123456789abcdef-nothing": 0})
    assert check_texts(broker) == sentence("Entries of indices without such a job")
    assert broker.health.repair() == ["Entries of indices removed that had no such job: 1."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert everything(broker) == before


def test_entries_of_another_time_are_removed(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    """A job would be handed out by them, too early or twice."""
    client.zadd(f"{ROOT}:{DUE}", {b"0123456later": 0, b"0123456ready": 0})
    assert check_texts(broker) == sentence("Entries of indices without such a job", 2)
    assert len(broker.health.repair()) == 1
    assert broker.health.check() == []
    assert "later" not in keys(hand.claim())


def test_jobs_without_payloads_are_removed(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    client.unlink(
        *(f"{ROOT}:{name}" for name in ("p:several", "c:several", "p:values", "dp:dead", "dc:dead", "p:runs"))
    )
    assert check_texts(broker) == sentence("Jobs without any payload", 4)
    assert broker.health.repair() == ["Jobs without any payload removed: 4."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert [broker.inspect.find("q", name) for name in ("several", "values", "dead")] == [[], [], []]
    assert places(broker, "runs") == {"running": ["1"]}


def test_jobs_have_the_payloads_that_there_are(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    values(broker, "values", {"c": 3.0})
    client.zremrangebyrank(f"{ROOT}:p:values", 0, 0)
    assert check_texts(broker) == sentence("Jobs that are not in all their indices")
    assert len(broker.health.repair()) == 1
    assert broker.health.check() == []
    assert (bodies(only(broker, "values")), only(broker, "values").size) == (["b", "c"], 2)


@pytest.mark.parametrize(
    ("table", "key", "payloads"),
    [
        ("jobs", "several", ["1", "2"]),
        ("jobs", "values", ["a", "b"]),
        ("morgue", "dead", ["1", "2"]),
        ("morgue", "dead-values", ["a", "b"]),
    ],
)
def test_payloads_without_a_job_are_put_into_the_morgue(
    broker: RedisBroker, hand: ScriptedWorker, client: Any, table: str, key: str, payloads: list[str]
) -> None:
    client.hdel(f"{ROOT}:{table}", key)
    assert sentence("Payloads without a job")[0] in check_texts(broker)
    assert "Payloads without a job put into the morgue: 1." in broker.health.repair()
    broker.health.repair()
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert places(broker, key) == {"dead": payloads}
    assert "laneway check --repair" in (only(broker, key).error or "")
    assert broker.operate.revive("q", [key]) == 1
    assert places(broker, key) == {"queued": payloads}


def test_what_is_queued_and_runs_is_set_aside(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    """Its key would run twice at the same time."""
    record = client.hget(f"{ROOT}:jobs", "several")
    claimed = next(claim for claim in hand.claim() if claim.key == "several")
    client.hset(f"{ROOT}:jobs", "several", record)
    client.zadd(f"{ROOT}:p:several", {b"1234567x": 1.0, b"1234567y": 2.0})
    call_like = client.hgetall(f"{ROOT}:c:runs")[b"2"]
    client.hset(f"{ROOT}:c:several", mapping={"x": call_like, "y": call_like})
    assert sentence("Jobs that are not in all their indices")[0] in check_texts(broker)
    assert "Jobs put into all their indices: 1." in broker.health.repair()
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert sorted(places(broker, "several")) == ["queued", "running"]
    assert claimed.key not in keys(hand.claim())


def test_claims_of_nobody_are_given_back(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    client.hdel("{laneway}:leases", hand.name)
    assert check_texts(broker) == sentence("Jobs claimed by a worker that does not exist", 2)
    assert broker.health.repair() == ["Claims of dead or unknown workers given back: 2."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert [bodies(only(broker, key)) for key in ("runs", "runs-values")] == [["1", "2", "3"], ["a", "b"]]
    assert numbers(broker).busy == 0


def test_claims_are_put_into_the_list_of_their_worker(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    """Or they would not be given back with the others of it."""
    client.unlink(f"{ROOT}:w:{hand.name}")
    assert check_texts(broker) == sentence("Claims that are not in the list of their worker", 2)
    assert broker.health.repair() == ["Claims put into the list of their worker: 2."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert broker.leave(hand.name) == 2


def test_claims_of_nobody_in_no_list_are_given_back_too(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    client.unlink(f"{ROOT}:w:{hand.name}")
    client.hdel("{laneway}:leases", hand.name)
    assert len(broker.health.check()) == 2
    assert "Claims of dead or unknown workers given back: 2." in broker.health.repair()
    assert broker.health.check() == []


def test_a_change_of_shards_that_is_not_finished_is_named(broker: RedisBroker, hand: ScriptedWorker) -> None:
    broker.shards.reshard("q", 7, limit=1)
    (problem,) = check_texts(broker)
    assert problem.startswith("The queue q is being resharded from 1 to 7 (3 of 10 jobs have moved), ")
    assert "laneway reshard q 7" in problem
    assert broker.health.repair() == []


def test_many_jobs_are_looked_through_in_pages(broker: RedisBroker, hand: ScriptedWorker, client: Any) -> None:
    broker.enqueue([job(str(n), delay_s=float(n % 2)) for n in range(6_000)])
    client.zremrangebyrank(f"{ROOT}:keys", 0, 1_999)
    client.ltrim(f"{ROOT}:{READY}", 10, -1)
    (problem,) = check_texts(broker)
    assert int(problem.split(": ")[1].split(";")[0]) > 2_000  # some are in neither
    broker.health.repair()
    assert (broker.health.check(), broker.health.repair()) == ([], [])


def test_settings_of_the_server_are_named_too(broker: RedisBroker, client: Any) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        (problem,) = check_texts(broker)
        assert "noeviction" in problem
        assert broker.health.repair() == []
    finally:
        client.config_set("maxmemory-policy", "noeviction")
