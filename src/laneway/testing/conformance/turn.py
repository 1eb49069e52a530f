"""Tests of claiming: which jobs a turn hands out, in which order, and that no other worker gets them.

Batches too: several jobs at a time from one shard, in the order that a scheduler asks for.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import BrokerError
from ...jobs.data import Claim
from ...jobs.settlement import done, failed, released
from ...jobs.shards import shard_of
from .fixtures import BrokerFixtures, ScriptedWorker, check_numbers, job, keys, needs, put


class TurnTests(BrokerFixtures):
    def test_a_job_is_not_due_before_its_time(self, broker: Broker, clock: ManualClock) -> None:
        """ "Early" is judged by the broker's clock, to the instant."""
        put(broker, "at", perform_at=clock.now() + 60)
        put(broker, "in", delay_s=60)
        hand = ScriptedWorker(broker)
        clock.advance(59.999)
        assert hand.claim() == []
        clock.advance(0.001)
        assert keys(hand.claim()) == ["at", "in"]

    @needs("due_order")
    def test_times_in_the_past_run_like_any_other(self, broker: Broker, clock: ManualClock) -> None:
        """Even negative ones, the most overdue first; a negative delay is one from now."""
        put(broker, "now")
        put(broker, "epoch", perform_at=0.0)
        put(broker, "before", perform_at=-86_400.5)
        put(broker, "late", delay_s=-1.0)
        assert keys(ScriptedWorker(broker).claim()) == ["before", "epoch", "late", "now"]

    @needs("due_order")
    def test_jobs_come_in_the_order_in_which_they_are_due(self, broker: Broker, clock: ManualClock) -> None:
        """By `perform_at`, across all shards, whatever the order of their arrival."""
        due = {f"k{n}": (n * 7) % 50 for n in range(50)}
        broker.enqueue([job(key, delay_s=float(delay)) for key, delay in due.items()])
        clock.advance(60)
        assert keys(ScriptedWorker(broker).claim()) == sorted(due, key=due.__getitem__)

    @needs("due_order")
    def test_microseconds_decide_the_order(self, broker: Broker, clock: ManualClock) -> None:
        """Times that differ by little differ."""
        base = clock.now() - 10
        broker.enqueue([job(f"k{n}", perform_at=base - n * 1e-6) for n in range(20)])
        assert keys(ScriptedWorker(broker).claim()) == [f"k{n}" for n in reversed(range(20))]

    def test_jobs_due_at_the_same_time_come_in_the_order_of_arrival(self, broker: Broker) -> None:
        """Within one call, across calls, and across shards."""
        expected = [f"k{n}" for n in range(60)]
        put(broker, *expected[:30])
        for key in expected[30:]:
            put(broker, key)
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(limit=25) + hand.claim(limit=25) + hand.claim()) == expected

    @needs("priorities")
    def test_the_highest_priority_comes_first(self, broker: Broker, clock: ManualClock) -> None:
        """Whatever is due of a higher priority goes before all that is lower; what is not due holds nobody up."""
        put(broker, "low", priority=-5, perform_at=1.0)
        put(broker, "usual", perform_at=2.0)
        put(broker, "high-2", priority=10)
        put(broker, "high-1", priority=10, perform_at=3.0)
        put(broker, "later", priority=99, delay_s=60)
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(limit=1)) == ["high-1"]
        assert keys(hand.claim()) == ["high-2", "usual", "low"]

    @needs("inspect", "sharding")
    def test_a_turn_claims_from_the_shards_it_names(self, broker: Broker) -> None:
        """A key belongs to crc32(key) mod shards, and only the shards asked for are looked at."""
        digits = [str(n) for n in range(10)]
        assert [shard_of(key, 5) for key in digits] == [4, 3, 2, 1, 3, 1, 0, 1, 1, 4]
        put(broker, *digits)
        hand = ScriptedWorker(broker)
        assert hand.claim(shards=[]) == []
        assert keys(hand.claim(shards=[4, 0])) == ["0", "6", "9"]
        assert keys(hand.claim(shards=[1, 1], limit=2)) == ["3", "5"]
        assert keys(hand.claim()) == ["1", "2", "4", "7", "8"]
        assert [broker.inspect.find("q", key)[0].shard for key in digits] == [shard_of(key, 5) for key in digits]

    def test_a_turn_claims_no_more_than_its_limit(self, broker: Broker) -> None:
        """0 claims nothing."""
        put(broker, *"abcdefgh")
        hand = ScriptedWorker(broker)
        assert [len(hand.claim(limit=limit)) for limit in (0, 1, 5, 5)] == [0, 1, 5, 2]

    def test_a_claimed_job_is_not_handed_out_again(self, broker: Broker, clock: ManualClock) -> None:
        """Not to its own worker nor to another, however much time passes: only a lease that ends frees it."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        assert keys(hand.claim()) == ["a"]
        clock.advance(86_400)
        assert hand.claim() == []
        assert other.claim() == []

    def test_all_claims_of_a_turn_bear_its_token(self, broker: Broker) -> None:
        """The token is the answer's."""
        put(broker, "a", "b")
        answer = ScriptedWorker(broker).turn(10)
        assert {claim.token for claim in answer.claims} == {answer.token}

    def test_tokens_only_grow(self, broker: Broker, clock: ManualClock) -> None:
        """Over all workers and queues, within one clock tick, and when the clock steps back."""
        broker.declare("other", 2)
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        tokens = [hand.turn(1).token, other.turn(1, queue="other").token]
        clock.step(-3_600)
        tokens += [hand.turn(1).token, other.turn(1).token]
        clock.step(7_200)
        tokens += [hand.turn(1).token]
        assert tokens == sorted(set(tokens))
        assert tokens[-1] >= clock.now() * 1e6 - 1  # so it still grows if the last one is ever forgotten

    @needs("priorities")
    def test_a_repeated_turn_gets_the_same_answer(self, broker: Broker) -> None:
        """The same `seq` again means that the answer was lost: the same claims come back, and no others."""
        put(broker, "a", "b", "c", priority=0)
        put(broker, "urgent", priority=1)
        hand = ScriptedWorker(broker)
        first = hand.turn(3)
        assert keys(first.claims) == ["urgent", "a", "b"]
        assert hand.again() == first
        assert hand.again() == first
        assert broker.status("q", "c") == "queued"

    def test_a_repeated_turn_settles_nothing_twice(self, broker: Broker) -> None:
        """Outbox and refusals are those of the first time, and what was accepted is not refused now."""
        put(broker, "a", "stale")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claims = {claim.key: claim for claim in hand.claim()}
        hand.settle(released(claims["stale"]))
        finished = [done(claims["a"], [job("child")]), done(claims["stale"])]
        answer = hand.turn(1, *finished)
        assert (answer.refused, keys(answer.claims)) == (["stale"], ["stale"])
        assert hand.again() == answer
        other.turn(0)
        assert hand.again() == answer
        assert keys(hand.claim()) == ["child"]

    @needs("inspect")
    def test_a_repeated_turn_counts_nothing_twice(self, broker: Broker) -> None:
        """Neither what was processed nor what failed."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        hand.settle(done(first), failed(second, "no", 25, 60.0))
        hand.again()
        check_numbers(broker, processed=1, failed=1)

    def test_a_repeated_turn_leaves_out_what_was_given_back(self, broker: Broker) -> None:
        """Only what is still held under the token comes back; the rest may be somebody else's by now."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        token = hand.turn(1).token
        broker.renew(hand.name, held=[], before=token + 1)
        assert keys(other.claim()) == ["a"]
        assert hand.again().claims == []

    def test_sequence_numbers_are_counted_for_each_worker_and_queue(self, broker: Broker) -> None:
        """The same number from another worker, or for another queue, is no repeat."""
        broker.enqueue([job("a"), job("b"), job("c", queue="other")])
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        assert keys(hand.claim(limit=1)) == ["a"]
        assert keys(other.claim(limit=1)) == ["b"]
        hand.seq = 0
        assert keys(hand.claim(queue="other")) == ["c"]

    def test_an_unknown_queue_is_an_error_that_names_it(self, broker: Broker) -> None:
        """A worker that serves a queue declares it first."""
        with pytest.raises(BrokerError, match="nowhere"):
            ScriptedWorker(broker).claim(queue="nowhere")

    def test_a_turn_for_another_epoch_claims_nothing(self, broker: Broker) -> None:
        """Its shards are not what it takes them for. It settles all the same."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        answer = hand.turn(1, epoch=1)
        (claim,) = answer.claims
        assert (answer.epoch, answer.shards, answer.resharding) == (1, broker.declare("q", 5), 0)
        answer = hand.turn(10, done(claim), epoch=2)
        assert (answer.claims, answer.refused, answer.epoch) == ([], [], 1)
        assert hand.again() == answer
        assert hand.settle(done(claim)) == ["a"]
        assert keys(hand.claim(epoch=0)) == ["b"]

    def test_threads_that_claim_at_once_never_get_the_same_job(self, broker: Broker) -> None:
        """Every job is handed out once, however many ask at the same time."""
        expected = {f"k{n}" for n in range(400)}
        put(broker, *expected)
        hands = [ScriptedWorker(broker, f"worker-{n}") for n in range(8)]
        start = threading.Barrier(len(hands))
        got: list[Claim] = []

        def drain(hand: ScriptedWorker) -> None:
            start.wait()
            while claims := hand.claim(limit=3):
                got.extend(claims)

        threads = [threading.Thread(target=drain, args=(hand,)) for hand in hands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(keys(got)) == sorted(expected)


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


@needs("sharding")
class BatchTests(BrokerFixtures):
    def test_a_claim_says_which_shard_it_is_from(self, broker: Broker) -> None:
        """So that a batch can be told from the next."""
        put(broker, *(key for some in OF_SHARD.values() for key in some))
        claims = ScriptedWorker(broker).claim()
        found = {shard: [claim.key for claim in claims if claim.shard == shard] for shard in range(5)}
        assert found == OF_SHARD

    def test_a_batch_is_taken_from_the_shard_with_the_most_overdue_job(self, broker: Broker) -> None:
        """With those of its shard that are due next, though others are more overdue than they are."""
        overdue(broker, {"3": 100, "5": 10, "7": 5, "8": 1, "2": 90, "13": 80, "0": 50, "9": 20})
        assert runs(ScriptedWorker(broker).claim(batch=2)) == [["3", "5"], ["2", "13"], ["0", "9"], ["7", "8"]]

    def test_a_batch_may_be_short(self, broker: Broker) -> None:
        """What is not due, or not within the limit, is not taken."""
        overdue(broker, {"3": 100, "5": 10, "2": 90, "7": -60})
        hand = ScriptedWorker(broker)
        assert runs(hand.claim(limit=1, batch=3)) == [["3"]]
        overdue(broker, {"8": 200})
        assert runs(hand.claim(batch=3)) == [["8", "5"], ["2"]]

    def test_shards_can_be_taken_in_turn(self, broker: Broker) -> None:
        """In the order in which they are named, round and round, whatever is more overdue."""
        overdue(broker, {"3": 9, "5": 8, "7": 7, "8": 6, "2": 100, "13": 99, "14": 98, "0": 50})
        claims = ScriptedWorker(broker).claim(shards=[1, 4, 2], batch=2, in_order=True)
        assert runs(claims) == [["3", "5"], ["0"], ["2", "13"], ["7", "8"], ["14"]]

    def test_one_at_a_time_in_turn(self, broker: Broker) -> None:
        """A batch of one is a batch."""
        overdue(broker, {"3": 9, "5": 8, "7": 7, "2": 100, "13": 99, "0": 50})
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(limit=4, shards=[2, 1], in_order=True)) == ["2", "3", "13", "5"]
        assert keys(hand.claim(in_order=True)) == ["7", "0"]

    @needs("priorities")
    def test_priorities_come_before_batches(self, broker: Broker) -> None:
        """What is urgent is taken first, from whichever shard."""
        overdue(broker, {"3": 100, "5": 90, "2": 80})
        overdue(broker, {"7": 1, "0": 2}, priority=5)
        hand = ScriptedWorker(broker)
        answer = hand.turn(10, batch=4)
        assert keys(answer.claims) == ["0", "7", "3", "5", "2"]
        hand.settle(*(released(claim) for claim in answer.claims))
        assert keys(hand.claim(shards=[1, 2, 4], batch=4, in_order=True)) == ["7", "0", "3", "5", "2"]

    def test_a_repeated_turn_has_its_batches_in_the_same_order(self, broker: Broker) -> None:
        """The same claims, standing together as before."""
        overdue(broker, {"3": 100, "5": 10, "7": 5, "2": 90, "13": 80, "0": 50})
        hand = ScriptedWorker(broker)
        ways: list[dict[str, Any]] = [{"batch": 2}, {"batch": 2, "in_order": True, "shards": [4, 2, 1]}]
        for fields in ways:
            answer = hand.turn(10, **fields)
            assert len(answer.claims) == 6
            assert hand.again() == answer
            hand.settle(*(released(claim) for claim in answer.claims))

    def test_shards_that_are_not_named_are_left_alone(self, broker: Broker, clock: ManualClock) -> None:
        """Named twice is named once; one that does not exist has nothing."""
        overdue(broker, {"3": 9, "2": 8, "0": 7, "6": 6, "9": 5})
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(shards=[4, 4, 77, 0], in_order=True)) == ["0", "6", "9"]
        assert keys(hand.claim(shards=[], batch=2)) == []
        assert keys(hand.claim(shards=[2], batch=2)) == ["2"]
