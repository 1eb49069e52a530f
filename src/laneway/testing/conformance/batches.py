"""Batches: jobs taken several at a time from one shard, in the order that a scheduler asks for."""

from __future__ import annotations

from typing import Any

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import Claim
from ...jobs.settlement import done, released
from .fixtures import Hand, Kit, job, keys, put

#: Keys of each of the five shards of the queue `q`.
OF_SHARD = {
    0: ["6", "12", "29"],
    1: ["3", "5", "7", "8"],
    2: ["2", "13", "14"],
    3: ["1", "4", "15"],
    4: ["0", "9", "11"],
}


def overdue(broker: Broker, by_s: dict[str, float], priority: int = 0) -> None:
    """Jobs that are late by so many seconds."""
    broker.enqueue([job(key, delay_s=-late, priority=priority) for key, late in by_s.items()])


def runs(claims: list[Claim]) -> list[list[str]]:
    """Claims put together by shard, as long as they stand together."""
    found: list[tuple[int, list[str]]] = []
    for claim in claims:
        if not found or found[-1][0] != claim.shard:
            found.append((claim.shard, []))
        found[-1][1].append(claim.key)
    return [group for _, group in found]


class Batches(Kit):
    def test_a_claim_says_which_shard_it_is_from(self, broker: Broker) -> None:
        """So that a batch can be told from the next."""
        put(broker, *(key for some in OF_SHARD.values() for key in some))
        claims = Hand(broker).claim()
        found = {shard: [claim.key for claim in claims if claim.shard == shard] for shard in range(5)}
        assert found == OF_SHARD

    def test_a_batch_is_taken_from_the_shard_with_the_most_overdue_job(self, broker: Broker) -> None:
        """With those of its shard that are due next, though others are more overdue than they are."""
        overdue(broker, {"3": 100, "5": 10, "7": 5, "8": 1, "2": 90, "13": 80, "0": 50, "9": 20})
        assert runs(Hand(broker).claim(batch=2)) == [["3", "5"], ["2", "13"], ["0", "9"], ["7", "8"]]

    def test_a_batch_may_be_short(self, broker: Broker) -> None:
        """What is not due, or not within the limit, is not taken."""
        overdue(broker, {"3": 100, "5": 10, "2": 90, "7": -60})
        hand = Hand(broker)
        assert runs(hand.claim(limit=1, batch=3)) == [["3"]]
        overdue(broker, {"8": 200})
        assert runs(hand.claim(batch=3)) == [["8", "5"], ["2"]]

    def test_shards_can_be_taken_in_turn(self, broker: Broker) -> None:
        """In the order in which they are named, round and round, whatever is more overdue."""
        overdue(broker, {"3": 9, "5": 8, "7": 7, "8": 6, "2": 100, "13": 99, "14": 98, "0": 50})
        claims = Hand(broker).claim(shards=[1, 4, 2], batch=2, in_order=True)
        assert runs(claims) == [["3", "5"], ["0"], ["2", "13"], ["7", "8"], ["14"]]

    def test_one_at_a_time_in_turn(self, broker: Broker) -> None:
        """A batch of one is a batch."""
        overdue(broker, {"3": 9, "5": 8, "7": 7, "2": 100, "13": 99, "0": 50})
        hand = Hand(broker)
        assert keys(hand.claim(limit=4, shards=[2, 1], in_order=True)) == ["2", "3", "13", "5"]
        assert keys(hand.claim(in_order=True)) == ["7", "0"]

    def test_priorities_come_before_batches(self, broker: Broker) -> None:
        """What is urgent is taken first, from whichever shard."""
        overdue(broker, {"3": 100, "5": 90, "2": 80})
        overdue(broker, {"7": 1, "0": 2}, priority=5)
        hand = Hand(broker)
        answer = hand.turn(10, batch=4)
        assert keys(answer.claims) == ["0", "7", "3", "5", "2"]
        hand.settle(*(released(claim) for claim in answer.claims))
        assert keys(hand.claim(shards=[1, 2, 4], batch=4, in_order=True)) == ["7", "0", "3", "5", "2"]

    def test_a_repeated_turn_has_its_batches_in_the_same_order(self, broker: Broker) -> None:
        """The same claims, standing together as before."""
        overdue(broker, {"3": 100, "5": 10, "7": 5, "2": 90, "13": 80, "0": 50})
        hand = Hand(broker)
        ways: list[dict[str, Any]] = [{"batch": 2}, {"batch": 2, "in_order": True, "shards": [4, 2, 1]}]
        for fields in ways:
            answer = hand.turn(10, **fields)
            assert len(answer.claims) == 6
            assert hand.again() == answer
            hand.settle(*(released(claim) for claim in answer.claims))

    def test_shards_that_are_not_named_are_left_alone(self, broker: Broker, clock: ManualClock) -> None:
        """Named twice is named once; one that does not exist has nothing."""
        overdue(broker, {"3": 9, "2": 8, "0": 7, "6": 6})
        hand = Hand(broker)
        assert keys(hand.claim(shards=[4, 4, 77, 0], batch=2, in_order=True)) == ["0", "6"]
        assert keys(hand.claim(shards=[], batch=2)) == []
        assert keys(hand.claim(shards=[2], batch=2)) == ["2"]

    def test_a_turn_for_another_epoch_claims_nothing(self, broker: Broker) -> None:
        """Its shards are not what it takes them for. It settles all the same."""
        put(broker, "a", "b")
        hand = Hand(broker)
        answer = hand.turn(1, epoch=1)
        (claim,) = answer.claims
        assert (answer.epoch, answer.shards, answer.resharding) == (1, 5, 0)
        answer = hand.turn(10, done(claim), epoch=2)
        assert (answer.claims, answer.refused, answer.epoch) == ([], [], 1)
        assert hand.again() == answer
        assert keys(hand.claim(epoch=0)) == ["b"]
