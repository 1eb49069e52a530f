"""Tests of operator actions on Redis, beyond the conformance suite: cancel, pause, run now, bury, revive, delete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.keys import Keys
from laneway.brokers.shared import PAGE
from laneway.clock import ManualClock
from laneway.errors import BrokerError
from laneway.jobs.settlement import buried, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, calls, only, places, put, values
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer, servers

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(redis_server: RedisServer, open_url: Opener, clock: ManualClock) -> Iterator[RedisBroker]:
    broker = RedisBroker(open_url(redis_server.url), clock=clock)
    broker.declare("q", 2)
    yield broker
    broker.close()


def test_any_number_of_keys_may_be_named(broker: RedisBroker) -> None:
    """They go in several calls, and a name that is said twice counts once, or not at all if it is gone by then."""
    names = [f"k{n}" for n in range(3 * PAGE)]
    put(broker, *names, delay_s=60)
    assert broker.operate.run_now("q", [*names, *names, "nobody"]) == len(names)
    hand = ScriptedWorker(broker)
    hand.settle(*(buried(claim, "no") for claim in hand.claim(limit=len(names))))
    assert broker.operate.revive("q", [*names[:-1], *names[:-1], "nobody"]) == len(names) - 1
    assert broker.operate.delete_dead("q", [*names, *names]) == 1


def test_a_call_that_was_cancelled_beside_a_run_is_still_the_last_that_came(
    broker: RedisBroker, clock: ManualClock
) -> None:
    """Calls without a time of their own run as they came, even if the clock steps back between them."""
    calls(broker, "k", "a")
    ScriptedWorker(broker).one()
    clock.advance(10)
    calls(broker, "k", "b")
    last = clock.now()
    assert broker.cancel("q", "k", "b")
    clock.step(-5)
    calls(broker, "k", "c")
    assert {view.status: view.perform_at for view in broker.inspect.find("q", "k")}["delayed"] == last


def test_a_full_server_lets_people_make_room(tmp_path: Path, open_url: Opener, clock: ManualClock) -> None:
    """What takes something away begins with that, and then Redis lets the rest of it pass."""
    server = RedisServer.start(servers()["valkey"], tmp_path)
    caller = open_url(server.url)
    broker = RedisBroker(caller, clock=clock)
    broker.declare("q", 2)
    for key in ("cancelled", "less", "buried", "deleted", "revived", "gone"):
        calls(broker, key, "a", "b")
    values(broker, "values", {"x": 1.0, "y": 2.0})
    hand = ScriptedWorker(broker)
    claims = {claim.key: claim for claim in hand.claim(limit=7)}
    hand.settle(
        *(failed(claims[key], "no", 5, 60.0) for key in ("cancelled", "less", "buried", "deleted", "values")),
        *(buried(claims[key], "no") for key in ("revived", "gone")),
    )
    calls(broker, "revived", "c")
    caller.do("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(BrokerError):
        put(broker, "refused")
    assert broker.cancel("q", "cancelled")
    assert broker.cancel("q", "less", "a")
    assert broker.operate.bury_failed("q", ["buried", "values"]) == 2
    assert broker.operate.delete_failed("q", ["deleted"]) == 1
    assert broker.operate.revive("q", ["revived"]) == 1
    assert broker.operate.delete_dead("q", ["gone"]) == 1
    caller.do("CONFIG", "SET", "maxmemory", "0")
    assert places(broker, "less") == {"queued": ["b"]}
    assert places(broker, "values") == {"dead": ["x", "y"]}
    assert set(places(broker, "buried")) == {"dead", "queued"}
    assert places(broker, "revived")["queued"][0] == "a"
    broker.close()
    server.end()


def test_operators_act_on_a_cluster(redis_cluster: RedisCluster, open_url: Opener, clock: ManualClock) -> None:
    caller = open_url(redis_cluster.url)
    broker = RedisBroker(caller, clock=clock)
    broker.declare("q", 12)
    names = [f"k{n}" for n in range(40)]
    put(broker, *names, delay_s=60)
    look, due = Keys("laneway").wakeup_lists("q")
    caller.do("UNLINK", look, due)
    assert broker.operate.run_now("q", names) == 40
    assert broker.operate.run_now("q", names) == 40
    assert caller.do("LRANGE", due, 0, -1) == [b"1"]
    assert broker.cancel("q", "k0")
    assert broker.reschedule("q", "k1", delay_s=5)
    assert only(broker, "k1").perform_at == clock.now() + 5
    assert (broker.cancel("q", "k0"), broker.reschedule("q", "k0")) == (False, False)
    assert broker.operate.pause("q")
    assert not broker.operate.pause("q")
    assert broker.operate.resume("q")
    assert (
        broker.operate.revive("q", names)
        == broker.operate.delete_dead("q", names)
        == broker.operate.bury_failed("q", names)
        == 0
    )
    broker.close()
