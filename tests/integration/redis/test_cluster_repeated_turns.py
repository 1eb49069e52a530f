"""Tests of turns on a Cluster that are repeated or arrive late, after other turns or a resharding."""

from __future__ import annotations

import pytest

from laneway.broker import Turn
from laneway.brokers.redis import RedisBroker
from laneway.errors import BrokerAwayError, BrokerError
from laneway.jobs.settlement import done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, job, keys, numbers, put
from tests.integration.redis.test_cluster_lost_replies import CUTS, Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def cut(redis_cluster: RedisCluster, open_url: Opener) -> Cut:
    return Cut(open_url(redis_cluster.url))


@pytest.fixture
def broker(cut: Cut) -> RedisBroker:
    broker = RedisBroker(cut)
    broker.declare("q", 3)
    return broker


@pytest.fixture
def other(redis_cluster: RedisCluster, open_url: Opener) -> RedisBroker:
    return RedisBroker(open_url(redis_cluster.url))


def finish(broker: RedisBroker, queue: str, shards: int) -> None:
    while not broker.shards.reshard(queue, shards).done:
        pass


@pytest.mark.parametrize("shards", [(1,), (5,), (1, 4)])
def test_what_was_refused_is_known_when_the_queue_has_other_shards(
    broker: RedisBroker, other: RedisBroker, shards: tuple[int, ...]
) -> None:
    names = [f"k{n}" for n in range(12)]
    put(broker, *names)
    hand = ScriptedWorker(broker)
    early = hand.claim(limit=4)
    late = hand.claim()
    broker.renew(hand.name, [late[0].token], late[0].token)  # the early ones are given back
    settlements = [
        *(done(claim, [job(f"child of {claim.key}")]) for claim in (*early[:2], *late[:4])),
        *(failed(claim, "no", 1, 0.0) for claim in (*early[2:3], *late[4:6])),
        *map(done, (*early[3:], *late[6:])),
    ]
    turn = Turn(hand.name, "q", 3, settlements)
    answer = broker.turn(turn)
    assert sorted(answer.refused) == sorted(keys(early))
    for count in shards:
        finish(other, "q", count)
    again = broker.turn(turn)
    assert (again.refused, again.token) == (answer.refused, answer.token)
    assert (numbers(other).length, numbers(other).processed) == (4 + 4 + 2, 6)


def test_what_was_given_back_before_the_queue_got_other_shards_is_refused(
    broker: RedisBroker, other: RedisBroker
) -> None:
    put(broker, "a", "b", "c")
    hand = ScriptedWorker(broker)
    claims = hand.claim()
    broker.renew(hand.name, [], 2**53)
    finish(other, "q", 2)
    assert sorted(hand.settle(*map(done, claims))) == ["a", "b", "c"]
    assert numbers(other).length == 3


def test_a_turn_that_found_the_queue_resting_claims_nothing_when_it_is_repeated(
    broker: RedisBroker, other: RedisBroker
) -> None:
    put(broker, *(f"k{n}" for n in range(9)))
    other.shards.reshard("q", 2, limit=1)
    hand = ScriptedWorker(broker)
    assert hand.claim() == []
    finish(other, "q", 2)
    assert hand.again().claims == []
    assert len(hand.claim()) == 9


@pytest.mark.parametrize("repeats", [True, False])
def test_a_call_of_a_turn_arrives_after_the_next_turn(broker: RedisBroker, cut: Cut, repeats: bool) -> None:
    """Its client waits for it no more: nothing is claimed for it."""
    put(broker, "a")
    hand = ScriptedWorker(broker)
    hand.turn(0)
    cut.at, cut.how = 0, CUTS["before"]
    with pytest.raises(BrokerAwayError):
        hand.claim()
    late = cut.late
    assert late
    broker.cancel("q", "a")
    if repeats:
        assert hand.again().claims == []
    assert hand.claim() == []
    put(broker, *(f"k{n}" for n in range(9)))
    cut.inner.exchange(late)
    assert numbers(broker).busy == 0
    assert len(hand.claim()) == 9


def test_a_turn_with_a_number_that_was_used_long_ago(broker: RedisBroker) -> None:
    put(broker, "a")
    hand = ScriptedWorker(broker)
    hand.turn(0)
    hand.turn(0)
    with pytest.raises(BrokerError, match="has taken another turn since"):
        broker.turn(Turn(hand.name, "q", 1, (), 5))
    assert numbers(broker).busy == 0
