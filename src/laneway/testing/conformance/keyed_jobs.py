"""Tests of keyed jobs: the calls of one key run in order and in one claim at a time.

Failures too: the call that failed stays at the head of its key, and nothing overtakes it.
"""

from __future__ import annotations

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import EnqueueError
from ...jobs.data import JobView, Kind, Payload, StartedRun
from ...jobs.settlement import buried, done, failed, postponed, released
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    attempts,
    bodies,
    call,
    calls,
    check_numbers,
    declare_dead,
    job,
    keys,
    needs,
    numbers,
    only,
    places,
    put,
    scores,
    value,
)


class KeyedJobTests(BrokerFixtures):
    @needs("inspect", "operate", "keyed", "queued_jobs")
    def test_a_key_that_waits_for_a_wrong_clock_can_be_run_now(self, broker: Broker, clock: ManualClock) -> None:
        """What was enqueued by a clock that went ahead is due now, and so is what comes after it."""
        calls(broker, "k", "a")
        clock.step(-86_400.0)
        calls(broker, "k", "b")
        assert only(broker, "k").perform_at == clock.now() + 86_400
        assert broker.operate.run_now("q", ["k"]) == 1
        calls(broker, "k", "c")
        claim = ScriptedWorker(broker).one()
        assert bodies(claim) == ["a", "b", "c"]
        calls(broker, "k", "d")
        assert broker.inspect.find("q", "k")[1].perform_at == clock.now()

    @needs("keyed", "due_order")
    @pytest.mark.parametrize("back", [0.5, 3_600.0])
    def test_calls_keep_the_order_of_their_arrival_when_the_clock_steps_back(
        self, broker: Broker, clock: ManualClock, back: float
    ) -> None:
        """Those that were given no time wait for those before them; one with a time of its own does not."""
        calls(broker, "k", "a", "b")
        clock.step(-back)
        calls(broker, "k", "c")
        calls(broker, "k", "early", perform_at=clock.now() - 1)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["early"]
        calls(broker, "k", "d", "e")
        hand.settle(done(claim))
        clock.advance(back)
        assert bodies(hand.one()) == ["a", "b", "c", "d", "e"]

    @needs("keyed")
    def test_a_plain_job_may_leave_its_id_as_a_key(self, broker: Broker) -> None:
        """What a run enqueues is stored when its own job is gone."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(done(hand.one(), [call("a", "next")])) == []
        assert bodies(hand.one()) == ["next"]

    @needs("keyed", "unique_keys")
    def test_a_key_of_another_kind_is_named(self, broker: Broker) -> None:
        """Whoever has to find out which of many runs is to blame is told the queue and the key."""
        put(broker, "a")
        calls(broker, "c", "1")
        with pytest.raises(EnqueueError, match="belongs to a plain job") as caught:
            broker.enqueue([call("b", "1"), call("a", "1")])
        assert caught.value.place == ("q", "a")
        assert broker.status("q", "b") == "gone"

    @needs("keyed", "due_order")
    def test_calls_of_a_key_come_together_by_due_time_then_arrival(self, broker: Broker, clock: ManualClock) -> None:
        """In one claim, whatever the order in which they came."""
        now = clock.now()
        calls(broker, "k", "second", "third", perform_at=now - 5)
        calls(broker, "k", "fourth")
        calls(broker, "k", "first", perform_at=now - 10)
        claim = ScriptedWorker(broker).one()
        assert bodies(claim) == ["first", "second", "third", "fourth"]
        assert (claim.kind, claim.key, claim.perform_at, claim.attempt) == (Kind.KEYED, "k", now - 10, 1)

    @needs("keyed")
    def test_a_call_comes_out_as_it_went_in(self, broker: Broker, clock: ManualClock) -> None:
        """Its id, its body, its own due time as its score, its own headers; handed out once."""
        at = clock.now() - 1.0000001
        broker.enqueue([call("k", "c-1", body='{"a":"ü🚲"}', perform_at=at, headers={"h": "1"}), call("k", "c-2")])
        claim = ScriptedWorker(broker).one()
        assert claim.payloads == [
            Payload('{"a":"ü🚲"}', at, "c-1", 1, {"h": "1"}),
            Payload("c-2", clock.now(), "c-2", 1, None),
        ]
        assert claim.headers is None

    @needs("keyed")
    def test_calls_within_one_instant_keep_their_order(self, broker: Broker) -> None:
        """Within one call of enqueue and across them."""
        calls(broker, "k", *(f"c{n}" for n in range(30)))
        for n in range(30, 40):
            calls(broker, "k", f"c{n}")
        assert drain(ScriptedWorker(broker)) == [f"c{n}" for n in range(40)]

    @needs("keyed")
    def test_two_equal_calls_are_two_payloads(self, broker: Broker) -> None:
        """They are told apart by their ids, never by what is in them."""
        broker.enqueue([call("k", "c-1", body="same"), call("k", "c-2", body="same")])
        claim = ScriptedWorker(broker).one()
        assert [(payload.identity, payload.body) for payload in claim.payloads] == [("c-1", "same"), ("c-2", "same")]

    @needs("keyed")
    def test_the_same_call_again_changes_nothing(self, broker: Broker) -> None:
        """While it is queued, set aside or being run: a repeat is harmless."""
        calls(broker, "k", "a", "b")
        calls(broker, "k", "a", body="other")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["a", "b"]
        calls(broker, "k", "c")
        calls(broker, "k", "b", "c", "a")
        hand.settle(done(claim))
        assert drain(hand) == ["c"]

    @needs("keyed")
    def test_a_call_that_is_repeated_while_it_runs_is_retried_once(self, broker: Broker) -> None:
        """Though it fails, the repeat does not stand behind it."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "a", "b")
        hand.settle(failed(claim, "no", 5, 0.0))
        assert drain(hand) == ["a", "b"]

    @needs("inspect", "keyed", "queued_jobs")
    def test_the_same_call_again_is_not_shown_twice(self, broker: Broker, clock: ManualClock) -> None:
        """Neither while it is queued nor while it runs, whatever time it is given."""
        calls(broker, "k", "a", "b")
        before = broker.inspect.find("q", "k")
        calls(broker, "k", "a", perform_at=clock.now() - 60, body="other")
        assert broker.inspect.find("q", "k") == before
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "b", delay_s=5)
        assert places(broker, "k") == {"running": ["a", "b"]}
        hand.settle(done(claim))
        assert broker.status("q", "k") == "gone"

    @needs("inspect", "keyed", "queued_jobs")
    def test_a_call_that_is_due_later_holds_nobody_back(self, broker: Broker, clock: ManualClock) -> None:
        """Nor is it handed out before its time."""
        calls(broker, "k", "later", delay_s=60)
        calls(broker, "k", "now")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["now"]
        assert places(broker, "k") == {"running": ["now"], "delayed": ["later"]}
        hand.settle(done(claim))
        assert (only(broker, "k").perform_at, broker.status("q", "k")) == (clock.now() + 60, "delayed")
        clock.advance(59)
        assert hand.claim() == []
        clock.advance(1)
        assert bodies(hand.one()) == ["later"]

    @needs("inspect", "keyed")
    def test_a_key_is_due_with_its_earliest_call(self, broker: Broker, clock: ManualClock) -> None:
        """A later one does not move it, an earlier one does."""
        for delay_s, due in ((60.0, 60.0), (90.0, 60.0), (10.0, 10.0)):
            calls(broker, "k", f"c{delay_s}", delay_s=delay_s)
            assert only(broker, "k").perform_at == clock.now() + due
            assert broker.status("q", "k", f"c{delay_s}") == "delayed"

    @needs("keyed", "large_claims")
    def test_a_hundred_calls_of_a_key_are_in_a_claim(self, broker: Broker) -> None:
        """The rest follow at once, in order; a turn may ask for more or fewer."""
        expected = [f"c{n:03}" for n in range(250)]
        calls(broker, "k", *expected)
        hand = ScriptedWorker(broker)
        got: list[str] = []
        sizes: list[int] = []
        for most in (7, None, None, 500):
            claim = hand.one(max_payloads=most)
            got += bodies(claim)
            sizes.append(len(claim.payloads))
            hand.settle(done(claim))
        assert (got, sizes) == (expected, [7, 100, 100, 43])
        assert broker.status("q", "k") == "gone"

    @needs("keyed")
    def test_a_key_that_runs_is_handed_to_nobody_else(self, broker: Broker, clock: ManualClock) -> None:
        """What comes meanwhile is set aside, however long that takes, and is next when the run has ended."""
        calls(broker, "k", "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        calls(broker, "k", "b")
        clock.advance(3_600)
        calls(broker, "k", "c")
        assert hand.claim() == []
        assert other.claim() == []
        hand.settle(done(claim))
        assert drain(other) == ["b", "c"]

    @needs("inspect", "keyed", "queued_jobs")
    def test_what_comes_while_a_key_runs_is_shown_as_queued(self, broker: Broker) -> None:
        """Beside the call that runs."""
        calls(broker, "k", "a")
        ScriptedWorker(broker).one()
        calls(broker, "k", "b")
        calls(broker, "k", "c")
        assert places(broker, "k") == {"running": ["a"], "queued": ["b", "c"]}

    @needs("keyed")
    def test_other_keys_go_on_meanwhile(self, broker: Broker) -> None:
        """Exclusion is per key, not per shard: "3", "5", "7" and "8" are in one."""
        calls(broker, "3", "slow")
        hand = ScriptedWorker(broker)
        hand.one()
        for key in ("5", "7", "8", "3"):
            calls(broker, key, f"call of {key}")
        assert keys(hand.claim()) == ["5", "7", "8"]

    @needs("inspect", "keyed", "queued_jobs")
    def test_the_job_set_aside_is_a_fresh_one(self, broker: Broker, clock: ManualClock) -> None:
        """It is shown beside the one that runs, and counted as queued."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.one()
        calls(broker, "k", "late", delay_s=30)
        calls(broker, "k", "soon", delay_s=10)
        running, aside = broker.inspect.find("q", "k")
        assert (running.status, running.worker, running.size) == ("running", hand.name, 1)
        assert (aside.status, aside.worker, aside.size) == ("delayed", None, 2)
        assert (aside.perform_at, aside.retry_count, aside.attempt) == (clock.now() + 10, -1, 0)
        check_numbers(broker, length=1, fresh=1, delayed=1)
        assert (numbers(broker).busy, broker.status("q", "k")) == (1, "running")
        clock.advance(10)
        check_numbers(broker, delayed=0, lag=0.0)

    @needs("keyed")
    def test_done_is_done_with_all_that_was_handed_out(self, broker: Broker, clock: ManualClock) -> None:
        """The next call starts without failures."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        claim = hand.one(max_payloads=2)
        hand.settle(done(claim))
        claim = hand.one()
        assert (bodies(claim), claim.attempt, claim.retry_count) == (["c"], 1, -1)

    @needs("inspect", "keyed", "exact_counts")
    def test_a_run_of_many_calls_counts_once(self, broker: Broker) -> None:
        """Stats count keys: those that were run, and those that wait."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(done(hand.one(max_payloads=2)))
        check_numbers(broker, processed=1, length=1)

    @needs("keyed")
    def test_calls_that_come_with_a_settlement_are_next(self, broker: Broker) -> None:
        """A run that enqueues for its own key: in the same step, and not beside itself."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        answer = hand.turn(10, done(hand.one(), [call("k", "b"), call("k", "c")]))
        assert [bodies(claim) for claim in answer.claims] == [["b", "c"]]

    @needs("keyed", "due_order")
    def test_a_released_key_keeps_its_place(self, broker: Broker, clock: ManualClock) -> None:
        """It goes before a key that became due while it was held."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        clock.advance(5)
        calls(broker, "l", "c")
        clock.advance(5)
        hand.settle(released(claim))
        assert [(claim.key, bodies(claim)) for claim in hand.claim()] == [("k", ["a", "b"]), ("l", ["c"])]

    @needs("inspect", "keyed", "queued_jobs")
    def test_a_key_that_gives_way_does_not_lose_its_place(self, broker: Broker) -> None:
        """Released, it is as it was: its time, its place among other keys, its attempts."""
        calls(broker, "k", "a", "b")
        calls(broker, "l", "c")
        before = broker.inspect.find("q", "k")
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(1)
        hand.settle(released(claim))
        assert broker.inspect.find("q", "k") == before
        assert keys(hand.claim()) == ["k", "l"]

    @needs("keyed", "collecting")
    def test_the_kinds_of_a_key_are_not_mixed(self, broker: Broker) -> None:
        """A key belongs to what is stored under it; nothing of the whole enqueue is stored."""
        put(broker, "plain")
        calls(broker, "keyed", "a")
        broker.enqueue([value("collecting", "v")])
        hand = ScriptedWorker(broker)
        for _ in range(2):  # queued, then running
            for bad in (call("plain", "x"), value("plain", "x"), call("collecting", "x"), value("keyed", "x")):
                with pytest.raises(EnqueueError, match=bad.key):
                    broker.enqueue([job("good"), call("other", "x"), bad])
                assert (broker.status("q", "good"), broker.status("q", "other")) == ("gone", "gone")
            hand.claim()
        with pytest.raises(EnqueueError, match="twice"):
            broker.enqueue([call("twice", "x"), value("twice", "x")])
        assert broker.status("q", "twice") == "gone"


@needs("keyed")
class KeyHeadClaimTests(BrokerFixtures):
    """What becomes of the first call of a key, seen by those who claim it next."""

    def test_a_failed_call_is_claimed_again_first(self, broker: Broker, clock: ManualClock) -> None:
        """At its retry time, with its count and its error; those before it are done, those behind it wait."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 20.0, done=1))
        calls(broker, "k", "d")
        assert hand.claim() == []
        clock.advance(20)
        claim = hand.one()
        assert (bodies(claim)[0], claim.payloads[0].attempt, claim.retry_count, claim.error) == ("b", 2, 0, "no")
        hand.settle(done(claim))
        assert bodies(claim) + drain(hand) == ["b", "c", "d"]

    def test_those_before_the_failed_call_are_done(self, broker: Broker) -> None:
        """It and those behind it come back; only it has failed, and been started."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 0.0, done=1))
        assert drained_attempts(hand) == {"b": 2, "c": 1}

    def test_those_behind_a_postponed_call_were_not_started(self, broker: Broker) -> None:
        """It was."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(postponed(hand.one(), 0.0, done=1))
        assert drained_attempts(hand) == {"b": 2, "c": 1}

    def test_those_behind_a_buried_call_were_not_started(self, broker: Broker) -> None:
        """With what came meanwhile they are next."""
        calls(broker, "k", *"abcd")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "e")
        hand.settle(buried(claim, "no", done=2))
        assert drained_attempts(hand) == {"d": 1, "e": 1}

    def test_what_is_released_behind_a_success_has_not_failed(self, broker: Broker) -> None:
        """The failure was that of the call that has succeeded since. Those behind it were never started."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        hand.settle(released(hand.one(), done=1))
        claim = hand.one()
        assert (claim.retry_count, claim.error, claim.attempt) == (-1, None, 1)
        hand.settle(released(claim))
        assert drained_attempts(hand) == {"b": 1, "c": 1}

    def test_what_is_postponed_behind_a_success_has_not_failed(self, broker: Broker) -> None:
        """Without a success the old failure stays."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        hand.settle(postponed(hand.one(), 0.0))
        claim = hand.one()
        assert (bodies(claim)[0], claim.retry_count, claim.error) == ("a", 0, "of a")
        hand.settle(postponed(claim, 0.0, done=1))
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["b"], -1, None)

    def test_a_released_call_that_failed_keeps_its_failure(self, broker: Broker) -> None:
        """Its count, its error and its place."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 0.0))
        hand.settle(released(hand.one()))
        claim = hand.one()
        assert (bodies(claim)[0], claim.retry_count, claim.error) == ("head", 0, "no")

    @needs("due_order")
    def test_nothing_overtakes_a_failed_call(self, broker: Broker, clock: ManualClock) -> None:
        """Not even a call with an earlier due time; nor does one wake the key before the retry."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "early", perform_at=-5.0)
        hand.settle(failed(claim, "no", 5, 60.0))
        calls(broker, "k", "earlier", perform_at=-6.0)
        assert hand.claim() == []
        clock.advance(60)
        claim = hand.one()
        assert bodies(claim) == ["head", "earlier", "early", "next"]
        hand.settle(released(claim))
        assert drain(hand) == ["head", "earlier", "early", "next"]

    def test_success_ends_the_rest_of_a_key(self, broker: Broker, clock: ManualClock) -> None:
        """After it an earlier call makes the key due again as ever."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        clock.advance(60)
        claim = hand.one()
        calls(broker, "k", "later", delay_s=60)
        hand.settle(done(claim))
        calls(broker, "k", "soon", delay_s=10)
        assert hand.claim() == []
        clock.advance(10)
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["soon"], -1, None)

    def test_calls_whose_claim_never_arrived_were_not_handed_out(self, broker: Broker) -> None:
        """A renewal that does not know of the claim gives it back."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        token = hand.turn(1).token
        broker.renew(hand.name, [], token + 1)
        assert drained_attempts(hand) == {"a": 1, "b": 1}

    @needs("leases", "due_order")
    def test_a_key_taken_back_from_the_dead_is_in_order(self, broker: Broker) -> None:
        """With what came meanwhile. That its calls were handed out is counted."""
        calls(broker, "k", "a", "b")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        calls(broker, "k", "early", perform_at=-5.0)
        declare_dead(broker, hand)
        assert broker.reclaim() == 1
        claim = other.one()
        assert bodies(claim) == ["early", "a", "b"]
        assert attempts(claim) == {"early": 1, "a": 2, "b": 2}
        assert (claim.retry_count, claim.error, claim.attempt) == (-1, None, 2)

    def test_a_call_that_fails_again_counts_on(self, broker: Broker) -> None:
        """And a success resets it: the next call to fail begins with its first retry."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        for count in range(3):
            claim = hand.one()
            assert (bodies(claim)[0], claim.retry_count, claim.attempt) == ("a", count - 1, count + 1)
            hand.settle(failed(claim, f"no {count}", 5, 0.0))
        hand.settle(failed(hand.one(), "b now", 5, 0.0, done=1))
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["b"], 0, "b now")

    def test_a_call_without_retries_is_buried_alone(self, broker: Broker) -> None:
        """Or one that asks for it; the calls behind it go on with all their retries."""
        calls(broker, "k", "a", "b", "c", "d")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "boom", 0, 0.0))
        claim = hand.one()
        assert (bodies(claim)[0], claim.retry_count, claim.error, claim.attempt) == ("b", -1, None, 1)
        hand.settle(buried(claim, "asked", done=1))
        assert drain(hand) == ["d"]

    @needs("inspect")
    def test_calls_that_were_buried_are_in_the_morgue(self, broker: Broker) -> None:
        """And no others."""
        calls(broker, "k", "a", "b", "c", "d")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "boom", 0, 0.0))
        hand.settle(buried(hand.one(), "asked", done=1))
        dead = broker.inspect.listing("q", "dead").jobs
        assert sorted(body for view in dead for body in bodies(view)) == ["a", "c"]

    def test_a_postponed_call_is_claimed_first_and_uncounted(self, broker: Broker, clock: ManualClock) -> None:
        """That it was started is not forgotten."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(postponed(hand.one(), 20.0))
        calls(broker, "k", "c")
        assert hand.claim() == []
        clock.advance(20)
        claim = hand.one()
        assert (bodies(claim)[0], claim.retry_count, claim.error, claim.attempt) == ("a", -1, None, 2)
        hand.settle(done(claim))
        assert bodies(claim) + drain(hand) == ["a", "b", "c"]

    def test_a_released_call_is_claimed_first(self, broker: Broker) -> None:
        """As if it had not been claimed; behind a success, too."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(released(hand.one()))
        claim = hand.one()
        assert (bodies(claim)[0], claim.attempt) == ("a", 1)
        hand.settle(released(claim, done=1))
        claim = hand.one()
        assert (bodies(claim), claim.attempt) == (["b"], 1)

    def test_what_comes_while_a_key_runs_is_next(self, broker: Broker) -> None:
        """And is handed to nobody before."""
        calls(broker, "k", "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        calls(broker, "k", "b", "c")
        assert (hand.claim(), other.claim()) == ([], [])
        hand.settle(done(claim))
        assert drain(other) == ["b", "c"]

    @needs("operate")
    def test_a_revived_call_waits_for_the_one_that_runs(self, broker: Broker) -> None:
        """It is next, with all its retries."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        calls(broker, "k", "b")
        claim = hand.one()
        assert broker.operate.revive("q", ["k"]) == 1
        assert hand.claim() == []
        hand.settle(done(claim))
        claim = hand.one()
        assert (bodies(claim), claim.retry_count) == (["a"], -1)

    def test_a_call_that_is_due_later_is_not_claimed_before(self, broker: Broker, clock: ManualClock) -> None:
        """It holds nobody back."""
        calls(broker, "k", "later", delay_s=60)
        calls(broker, "k", "now")
        hand = ScriptedWorker(broker)
        assert drain(hand) == ["now"]
        clock.advance(59)
        assert hand.claim() == []
        clock.advance(1)
        assert drain(hand) == ["later"]

    def test_a_death_stays_with_its_call(self, broker: Broker) -> None:
        """Not with those that were claimed with it."""
        calls(broker, "k", "a", "b")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        broker.leave(hand.name, [StartedRun("q", "k", claim.token, claim.payloads[0].identity)])
        assert {payload.body: payload.deaths for payload in other.one().payloads} == {"a": 1, "b": 0}


def drain(hand: ScriptedWorker) -> list[str]:
    """Run all that is due. Returns the bodies, in order."""
    found: list[str] = []
    while claims := hand.claim():
        found += [body for claim in claims for body in bodies(claim)]
        hand.settle(*map(done, claims))
    return found


def drained_attempts(hand: ScriptedWorker) -> dict[str, int]:
    """Run all that is due, in however many claims it comes. Returns how often each call was handed out, in order."""
    found: dict[str, int] = {}
    while claims := hand.claim():
        for claim in claims:
            assert not found.keys() & attempts(claim), "a call came twice"
            found |= attempts(claim)
        hand.settle(*map(done, claims))
    return found


@needs("inspect", "keyed")
class KeyHeadTests(BrokerFixtures):
    """What is shown of a key whose first call failed, was postponed, buried or given back."""

    @needs("queued_jobs")
    def test_a_failed_call_is_shown_with_those_behind_it(self, broker: Broker, clock: ManualClock) -> None:
        """Delayed until its retry time, with its count and its error. Those before it are processed."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0, done=1))
        view = only(broker, "k")
        assert (view.status, bodies(view), view.size) == ("delayed", ["b", "c"], 2)
        assert (view.retry_count, view.error, view.perform_at) == (0, "no", clock.now() + 60)
        check_numbers(broker, processed=1, failed=1, retries=1)

    @needs("queued_jobs", "due_order")
    def test_a_key_that_rests_is_shown_with_the_time_of_its_retry(self, broker: Broker, clock: ManualClock) -> None:
        """Also with an earlier call behind its head."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        calls(broker, "k", "early", perform_at=-5.0)
        assert only(broker, "k").perform_at == clock.now() + 60
        assert bodies(only(broker, "k")) == ["head", "early", "next"]

    @needs("queued_jobs", "due_order")
    def test_what_came_while_the_head_failed_waits_behind_it(self, broker: Broker, clock: ManualClock) -> None:
        """United with the rest; the time and the count are those of the failure."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "early", perform_at=-5.0)
        hand.settle(failed(claim, "no", 5, 60.0))
        view = only(broker, "k")
        assert (bodies(view), view.retry_count, view.perform_at) == (["head", "early", "next"], 0, clock.now() + 60)
        assert hand.claim() == []

    @needs("queued_jobs")
    def test_a_head_keeps_its_own_due_time_for_all_to_see(self, broker: Broker, clock: ManualClock) -> None:
        """How a broker keeps it in front is its own business: in claims, views and the morgue."""
        at = clock.now() - 7
        calls(broker, "k", "head", perform_at=at)
        calls(broker, "k", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 0.0))
        assert scores(only(broker, "k")) == {"head": at, "next": clock.now()}
        assert scores(broker.inspect.listing("q", "retries").jobs[0]) == {"head": at, "next": clock.now()}
        claim = hand.one()
        assert scores(claim) == {"head": at, "next": clock.now()}
        hand.settle(failed(claim, "no", 1, 0.0))
        assert [scores(view) for view in broker.inspect.find("q", "k")] == [{"next": clock.now()}, {"head": at}]

    @needs("queued_jobs")
    def test_a_head_that_fails_again_counts_on(self, broker: Broker) -> None:
        """And a success resets it: the next call to fail begins with its first retry."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        for count in range(3):
            claim = hand.one()
            assert (claim.retry_count, claim.attempt) == (count - 1, count + 1)
            hand.settle(failed(claim, f"no {count}", 5, 0.0))
        claim = hand.one()
        assert attempts(claim) == {"a": 4, "b": 1}
        hand.settle(failed(claim, "b now", 5, 0.0, done=1))
        view = only(broker, "k")
        assert (bodies(view), view.retry_count, view.error) == (["b"], 0, "b now")

    @needs("queued_jobs")
    def test_a_key_counts_the_attempts_of_the_call_that_failed(self, broker: Broker) -> None:
        """In the queue and in the morgue. Those of the call before it, which has succeeded since, are not added."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        hand.settle(failed(hand.one(), "of b", 5, 0.0, done=1))
        view = only(broker, "k")
        assert (bodies(view), attempts(view), view.attempt) == (["b"], {"b": 1}, 1)
        claim = hand.one()
        assert (attempts(claim), claim.attempt) == ({"b": 2}, 2)
        hand.settle(buried(claim, "of b"))
        dead = only(broker, "k")
        assert (dead.status, attempts(dead), dead.attempt) == ("dead", {"b": 2}, 2)

    @needs("operate", "leases", "queued_jobs")
    @pytest.mark.parametrize("by_hand", [False, True])
    def test_the_morgue_counts_the_attempts_of_what_was_buried_last(self, broker: Broker, by_hand: bool) -> None:
        """Each call has its own count, whatever else of its key was handed out, taken back or buried."""
        calls(broker, "k", "a", "b")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        declare_dead(broker, hand)
        broker.reclaim()
        calls(broker, "k", "early", perform_at=-5.0)
        for body, count in (("early", 1), ("a", 2), ("b", 2)):
            claim = other.one()
            if by_hand:
                other.settle(failed(claim, f"of {body}", 5, 60.0))
                assert broker.operate.bury_failed("q", ["k"]) == 1
            else:
                other.settle(buried(claim, f"of {body}"))
            dead = broker.inspect.find("q", "k")[-1]
            assert (dead.status, dead.error, dead.attempt) == ("dead", f"of {body}", count)
            assert attempts(dead)[body] == count

    @needs("queued_jobs")
    def test_when_its_retries_are_used_up_the_head_alone_is_buried(self, broker: Broker, clock: ManualClock) -> None:
        """What is left goes back with all its retries, each call due at its own time."""
        calls(broker, "k", "a", "b")
        calls(broker, "k", "later", delay_s=30)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "boom", 0, 0.0))
        queued, dead = broker.inspect.find("q", "k")
        assert (bodies(queued), queued.status, queued.perform_at) == (["b", "later"], "queued", clock.now())
        assert (queued.retry_count, queued.error, queued.attempt) == (-1, None, 0)
        assert (bodies(dead), dead.status, dead.error, dead.retry_count) == (["a"], "dead", "boom", 0)
        claim = hand.one()
        assert (bodies(claim), attempts(claim), claim.attempt) == (["b"], {"b": 1}, 1)
        hand.settle(buried(claim, "asked"))
        assert only_queued(broker).perform_at == clock.now() + 30
        assert places(broker, "k") == {"delayed": ["later"], "dead": ["a", "b"]}

    @needs("queued_jobs")
    def test_burying_in_the_middle_leaves_nothing_undone(self, broker: Broker) -> None:
        """The first are done, one is buried, the others wait, and so does what came meanwhile."""
        calls(broker, "k", *"abcd")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "e")
        hand.settle(buried(claim, "no", done=2))
        assert places(broker, "k") == {"queued": ["d", "e"], "dead": ["c"]}
        assert attempts(hand.one()) == {"d": 1, "e": 1}
        check_numbers(broker, processed=1, failed=1)

    @needs("queued_jobs")
    def test_the_last_call_buried_takes_its_job_along(self, broker: Broker) -> None:
        """Nothing is left in the queue but what was set aside."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "b")
        hand.settle(buried(claim, "no"))
        assert places(broker, "k") == {"queued": ["b"], "dead": ["a"]}
        hand.settle(buried(hand.one(), "no"))
        assert places(broker, "k") == {"dead": ["a", "b"]}
        check_numbers(broker, length=0, dead=1)

    @needs("queued_jobs", "due_order")
    def test_a_postponed_call_stays_at_the_head_uncounted(self, broker: Broker, clock: ManualClock) -> None:
        """Nothing overtakes it either; that it was started is not forgotten."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(postponed(hand.one(), 30.0))
        calls(broker, "k", "early", perform_at=-5.0)
        view = only(broker, "k")
        assert (view.perform_at, view.retry_count, view.error) == (clock.now() + 30, -1, None)
        assert numbers(broker).failed == 0
        assert hand.claim() == []
        clock.advance(30)
        claim = hand.one()
        assert attempts(claim) == {"a": 2, "early": 1, "b": 1}

    @needs("queued_jobs")
    def test_postponing_behind_a_success_forgets_the_old_failure(self, broker: Broker) -> None:
        """Its error was that of the call that has succeeded since."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        hand.settle(postponed(hand.one(), 0.0))
        assert (only(broker, "k").error, only(broker, "k").retry_count) == ("of a", 0)
        hand.settle(postponed(hand.one(), 0.0, done=1))
        view = only(broker, "k")
        assert (bodies(view), view.error, view.retry_count) == (["b"], None, -1)

    @needs("queued_jobs")
    def test_what_is_released_behind_a_success_was_never_started(self, broker: Broker, clock: ManualClock) -> None:
        """The finished calls are gone; the others are as fresh as on their first day."""
        at = clock.now()
        calls(broker, "k", "a", "b", "c", perform_at=at)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        clock.advance(5)
        hand.settle(released(hand.one(), done=1))
        view = only(broker, "k")
        assert (attempts(view), view.attempt, view.retry_count) == ({"b": 0, "c": 0}, 0, -1)
        assert (view.error, view.perform_at, view.status) == (None, at, "queued")
        check_numbers(broker, processed=1, failed=1)

    @needs("queued_jobs", "due_order")
    def test_a_released_head_is_still_the_head(self, broker: Broker, clock: ManualClock) -> None:
        """With its count, its error and its place, also if an earlier call came meanwhile."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        clock.advance(60)
        before = only(broker, "k")
        hand.settle(released(hand.one()))
        assert only(broker, "k") == before
        claim = hand.one()
        calls(broker, "k", "early", perform_at=-5.0)
        hand.settle(released(claim))
        assert (bodies(only(broker, "k")), only(broker, "k").retry_count) == (["head", "early", "next"], 0)

    @needs("leases", "queued_jobs")
    def test_a_key_taken_back_from_the_dead_is_as_it_was(self, broker: Broker, clock: ManualClock) -> None:
        """United with what came meanwhile, in order; handed out is counted, failed is not."""
        calls(broker, "k", "a", "b")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        calls(broker, "k", "early", perform_at=-5.0)
        declare_dead(broker, hand)
        assert broker.reclaim() == 1
        view = only(broker, "k")
        assert (view.retry_count, view.error, view.perform_at, view.attempt) == (-1, None, -5.0, 1)
        claim = other.one()
        assert attempts(claim) == {"early": 1, "a": 2, "b": 2}
        assert claim.attempt == 2

    @needs("queued_jobs")
    def test_calls_that_never_reached_their_worker_were_not_handed_out(self, broker: Broker) -> None:
        """A renewal that does not know of them gives them back as they were."""
        calls(broker, "k", "a", "b")
        before = broker.inspect.find("q", "k")
        hand = ScriptedWorker(broker)
        token = hand.turn(1).token
        broker.renew(hand.name, [], token + 1)
        assert broker.inspect.find("q", "k") == before

    def test_a_key_whose_rest_has_ended_is_shown_with_its_earliest_call(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        """And without the old failure."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        clock.advance(60)
        claim = hand.one()
        calls(broker, "k", "later", delay_s=60)
        hand.settle(done(claim))
        calls(broker, "k", "soon", delay_s=10)
        view = only(broker, "k")
        assert (view.perform_at, view.retry_count, view.error) == (clock.now() + 10, -1, None)


def only_queued(broker: Broker) -> JobView:
    return next(view for view in broker.inspect.find("q", "k") if view.status in ("queued", "delayed"))
