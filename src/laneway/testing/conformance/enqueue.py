"""Tests of `declare` and `enqueue`: jobs come out as they went in; a list is stored whole or not at all."""

from __future__ import annotations

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import BrokerError, EnqueueError, LanewayError
from ...jobs.data import Payload
from ...jobs.keys import MAX_KEY
from ...jobs.merge import LARGEST_SCORE
from ...jobs.settlement import done
from ...jobs.shards import DEFAULT_SHARDS, MAX_SHARDS
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    call,
    every_key,
    job,
    keys,
    lacks,
    needs,
    numbers,
    only,
    put,
    value,
)


class EnqueueTests(BrokerFixtures):
    @needs("inspect", "sharding")
    def test_the_shard_count_of_a_queue_is_the_one_it_was_made_with(self, broker: Broker) -> None:
        """`declare` makes a queue once; the stored count is the truth for everybody after that."""
        assert broker.declare("mail", 3) == 3
        assert broker.declare("mail", 7) == 3
        assert broker.inspect.queues() == {"mail": 3, "q": 5}

    @pytest.mark.parametrize("shards", [0, -1, MAX_SHARDS + 1])
    def test_a_queue_needs_a_shard(self, broker: Broker, shards: int) -> None:
        """Fewer than one shard is refused, and more than a worker can look through. The queue is not made."""
        with pytest.raises(LanewayError):
            broker.declare("none", shards)
        with pytest.raises(BrokerError, match="none"):
            ScriptedWorker(broker).claim(queue="none")

    @needs("shards")
    @pytest.mark.parametrize("shards", [0, -1, MAX_SHARDS + 1])
    def test_no_queue_is_resharded_to_an_impossible_number(self, broker: Broker, shards: int) -> None:
        """It keeps the number that it has."""
        with pytest.raises(LanewayError):
            broker.shards.reshard("q", shards)
        assert broker.declare("q", 2) == 5

    def test_a_queue_that_nobody_declared_is_made_by_its_first_job(self, broker: Broker) -> None:
        """And the job is in it."""
        put(broker, "a", queue="new")
        assert broker.status("new", "a") == "queued"
        assert keys(ScriptedWorker(broker).claim(queue="new")) == ["a"]

    @needs("inspect")
    def test_a_queue_that_its_first_job_made_is_shown(self, broker: Broker) -> None:
        """Among those that were declared."""
        put(broker, "a", queue="new")
        assert set(broker.inspect.queues()) == {"new", "q"}

    @needs("sharding")
    def test_a_queue_that_nobody_declared_has_the_default_number_of_shards(self, broker: Broker) -> None:
        """A worker that declares it later learns that number."""
        put(broker, "a", queue="new")
        assert broker.declare("new", 2) == DEFAULT_SHARDS

    def test_a_job_comes_out_as_it_went_in(self, broker: Broker, clock: ManualClock) -> None:
        """Key, body and headers survive; a fresh job has failed never and been handed out once."""
        body = '{"_job_class":"Größe","_job_params":{"q":"\'\\"; DROP TABLE jobs; --","e":"🚲"}}'
        put(broker, "k-\"'é🚲", body=body, headers={"trace": 'ü"', "n": ""})
        claim = ScriptedWorker(broker).one()
        assert (claim.queue, claim.key, claim.payloads) == ("q", "k-\"'é🚲", [Payload(body, 0.0)])
        assert claim.headers == {"trace": 'ü"', "n": ""}
        assert (claim.perform_at, claim.retry_count, claim.attempt, claim.deaths) == (clock.now(), -1, 1, 0)
        assert claim.error is None

    @needs("keyed", "control_characters")
    def test_characters_that_end_texts_elsewhere_survive(self, broker: Broker) -> None:
        """NUL, newlines and backslashes are characters like any other."""
        body, key = 'a\0b\n\\u0000 "\\" \x7f\u2028', "key\0with\0nul"
        broker.enqueue([job("plain"), job(key, body, headers={"h": "x\0y"}), job("key"), call("k", "c", body=body)])
        claims = {claim.key: claim for claim in ScriptedWorker(broker).claim()}
        assert claims.keys() == {"plain", key, "key", "k"}
        assert claims["k"].payloads[0].body == body
        assert (claims[key].payloads[0].body, claims[key].headers) == (body, {"h": "x\0y"})

    @needs("inspect", "queued_jobs")
    def test_times_and_scores_are_shown_as_given(self, broker: Broker, clock: ManualClock) -> None:
        """Not one bit is rounded away. A plain job may have a score, too; it means nothing to the broker."""
        clock.step(0.123456789)
        at = clock.now() - 1.0000001
        put(broker, "a", perform_at=at, score=0.1 + 0.2)
        assert only(broker, "a").perform_at == at
        assert only(broker, "a").payloads[0].score == 0.1 + 0.2
        assert ScriptedWorker(broker).one().payloads[0].score == 0.1 + 0.2

    def test_numbers_and_times_are_stored_as_given(self, broker: Broker, clock: ManualClock) -> None:
        """Not one bit of a time is rounded away, nor of a number within a body."""
        clock.step(0.123456789)
        at = clock.now() - 1.0000001
        put(broker, "a", body="123456789012345678901234567890", perform_at=at)
        claim = ScriptedWorker(broker).one()
        assert (claim.perform_at, claim.payloads) == (at, [Payload("123456789012345678901234567890")])

    def test_a_body_of_the_largest_size_is_stored(self, broker: Broker) -> None:
        """`max_body` is a promise."""
        put(broker, "a", body="x" * broker.capabilities.max_body)
        assert len(ScriptedWorker(broker).one().payloads[0].body) == broker.capabilities.max_body

    def test_what_is_handed_out_is_a_copy(self, broker: Broker) -> None:
        """A handler that changes what it got, or a caller what he gave, changes nothing in the broker."""
        headers = {"a": "1"}
        put(broker, "a", headers=headers)
        headers["a"] = "2"
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert claim.headers == {"a": "1"}
        (claim.headers or {})["a"] = "3"
        claim.payloads.clear()
        (repeated,) = hand.again().claims
        assert (repeated.headers, len(repeated.payloads)) == ({"a": "1"}, 1)

    @needs("unique_keys")
    def test_a_key_that_is_queued_is_not_stored_twice(self, broker: Broker) -> None:
        """A repeated `enqueue` is harmless, within a call and across calls."""
        put(broker, "a", "b", "a")
        put(broker, "b", "a")
        assert keys(ScriptedWorker(broker).claim()) == ["a", "b"]

    @needs("priorities")
    def test_a_repeat_changes_nothing_of_the_job(self, broker: Broker) -> None:
        """The job that is there stays as it is: its body, its time, its place."""
        put(broker, "a", body="first")
        put(broker, "b")
        put(broker, "a", body="second", delay_s=60, priority=9)
        assert [(claim.key, claim.payloads[0].body) for claim in ScriptedWorker(broker).claim()] == [
            ("a", "first"),
            ("b", "{}"),
        ]

    def test_a_key_that_is_running_is_not_stored_twice(self, broker: Broker) -> None:
        """A repeat that comes while the job runs is harmless too: it runs once."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        put(broker, "a")
        assert hand.claim() == []
        hand.settle(done(claim))
        assert hand.claim() == []

    def test_equal_bodies_under_two_keys_are_two_jobs(self, broker: Broker) -> None:
        """Jobs are told apart by their keys, never by what is in them."""
        broker.enqueue([job("a", "same"), job("b", "same")])
        assert keys(ScriptedWorker(broker).claim()) == ["a", "b"]

    def test_queues_in_one_broker_know_nothing_of_each_other(self, broker: Broker) -> None:
        """A key is unique within its queue, and a claim is a queue's own."""
        broker.enqueue([job("a", "mine"), job("a", "other's", queue="other"), job("b", queue="other")])
        hand = ScriptedWorker(broker)
        theirs = hand.one(queue="other", limit=1)
        assert theirs.payloads[0].body == "other's"
        assert (broker.status("q", "a"), broker.status("other", "a")) == ("queued", "running")
        mine = hand.one()
        assert mine.payloads[0].body == "mine"
        assert hand.settle(done(mine)) == []
        assert broker.status("other", "a") == "running"
        assert hand.settle(done(theirs), queue="other") == []
        assert keys(hand.claim(queue="other")) == ["b"]

    @needs("inspect", "queued_jobs")
    def test_a_queue_is_counted_and_cancelled_from_by_itself(self, broker: Broker) -> None:
        """Jobs of one key in two queues are two jobs."""
        broker.enqueue([job("a"), job("a", queue="other"), job("b", queue="other")])
        assert (numbers(broker).length, numbers(broker, "other").length) == (1, 2)
        assert broker.cancel("q", "a")
        assert (numbers(broker).length, numbers(broker, "other").length) == (0, 2)
        assert broker.status("other", "a") == "queued"

    def test_enqueueing_is_all_or_nothing(self, broker: Broker) -> None:
        """If one job cannot be stored none is, in a call of any size."""
        hand = ScriptedWorker(broker)
        good = [job(f"k{n}") for n in range(1_500)]
        for bad in (
            job("bad", perform_at=float("nan")),
            job("bad", delay_s=float("inf")),
            job("bad", "half a character: \ud800"),
            job("bad \udfff"),
            job("bad", priority=2**80),
        ):
            with pytest.raises(EnqueueError):
                broker.enqueue([*good, bad])
            assert hand.claim() == []

    @needs("inspect", "keyed", "collecting")
    def test_a_key_or_score_that_cannot_be_kept_is_refused(self, broker: Broker) -> None:
        """Keys are 1 to 512 bytes, scores are numbers; and nothing of the whole call is stored."""
        nan, infinity = float("nan"), float("inf")
        for bad in (
            call("", "a"),
            value("k" * (MAX_KEY + 1)),
            call("é" * (MAX_KEY // 2) + "e", "a"),
            *(value("k", "v", score=score) for score in (nan, infinity, -infinity, -1e300, 1e300)),
            call("k", "a \ud800"),
            call("k", "a", perform_at=nan),
        ):
            with pytest.raises(EnqueueError):
                broker.enqueue([job("good"), call("good key", "a"), value("other", "v"), bad])
            assert numbers(broker).length == 0
        broker.enqueue([call("é" * (MAX_KEY // 2), "a"), value("k" * MAX_KEY, "v", score=-LARGEST_SCORE)])
        assert numbers(broker).length == 2

    def test_enqueueing_nothing_is_nothing(self, broker: Broker) -> None:
        """An empty list is no error."""
        broker.enqueue([])
        assert ScriptedWorker(broker).claim() == []

    def test_ten_thousand_jobs_go_in_at_once(self, broker: Broker) -> None:
        """One call stores them all."""
        expected = [f"k{n}" for n in range(10_000)]
        put(broker, *expected)
        assert sorted(every_key(ScriptedWorker(broker))) == sorted(expected)

    def test_ten_thousand_jobs_may_be_enqueued_by_a_run(self, broker: Broker) -> None:
        """That is the limit of an outbox, and it is stored whole."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        expected = [f"k{n}" for n in range(10_000)]
        hand.settle(done(hand.one(), [job(key) for key in expected]))
        assert sorted(every_key(hand)) == sorted(expected)

    @needs("due_order")
    def test_ten_thousand_jobs_come_out_in_order(self, broker: Broker) -> None:
        """In the order in which they went in, and in one claim."""
        expected = [f"k{n}" for n in range(10_000)]
        put(broker, *expected)
        assert keys(ScriptedWorker(broker).claim(limit=20_000)) == expected

    @needs("inspect", "exact_counts")
    def test_ten_thousand_jobs_are_counted(self, broker: Broker) -> None:
        """All of them, at once."""
        put(broker, *(f"k{n}" for n in range(10_000)))
        assert numbers(broker).length == 10_000


class RefusalTests(BrokerFixtures):
    @lacks("keyed")
    def test_a_keyed_job_is_refused(self, broker: Broker) -> None:
        """With everything that was to be stored beside it."""
        with pytest.raises(EnqueueError):
            broker.enqueue([job("a"), call("k", "x")])
        assert broker.status("q", "a") == "gone"

    @lacks("collecting")
    def test_a_collecting_job_is_refused(self, broker: Broker) -> None:
        """With everything that was to be stored beside it."""
        with pytest.raises(EnqueueError):
            broker.enqueue([job("a"), value("k", "x")])
        assert ScriptedWorker(broker).claim() == []

    @lacks("priorities")
    def test_a_job_with_a_priority_is_refused(self, broker: Broker) -> None:
        """With everything that was to be stored beside it."""
        with pytest.raises(EnqueueError):
            broker.enqueue([job("a"), job("b", priority=1)])
        assert ScriptedWorker(broker).claim() == []
