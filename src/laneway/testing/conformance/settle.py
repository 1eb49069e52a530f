"""Tests of settling: the effect of each verdict on a job; only the holder of a claim can settle it."""

from __future__ import annotations

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import EnqueueError
from ...jobs.data import Kind
from ...jobs.settlement import Settlement, buried, died, done, failed, postponed, released
from .fixtures import (
    CANCELLABLE,
    BrokerFixtures,
    ScriptedWorker,
    call,
    calls,
    check_numbers,
    job,
    keys,
    lacks,
    needs,
    numbers,
    only,
    places,
    put,
    value,
    values,
)

#: Ends in half a character, which cannot be stored.
ODD_TEXT = "NUL \0, quote ', 🚲 and half \udcff"


class SettleTests(BrokerFixtures):
    def test_a_done_job_is_gone(self, broker: Broker) -> None:
        """It is not handed out again, whatever its status is called."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(done(hand.one())) == []
        assert broker.status("q", "a") in ("done", "gone")
        assert hand.claim() == []

    @needs("inspect", "queued_jobs")
    def test_a_done_job_is_counted(self, broker: Broker) -> None:
        """And not shown any more."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(done(hand.one())) == []
        assert (broker.status("q", "a"), broker.inspect.find("q", "a")) == ("gone", [])
        check_numbers(broker, processed=1, failed=0, busy=0)

    def test_one_turn_settles_and_claims(self, broker: Broker) -> None:
        """What it settles is settled before it claims: a released job may come straight back."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        answer = hand.turn(10, done(first), released(second))
        assert (answer.refused, keys(answer.claims)) == ([], ["b"])
        assert answer.claims[0].token > second.token

    @needs("unique_keys")
    def test_a_run_may_enqueue_its_own_key_again(self, broker: Broker) -> None:
        """Its job is gone by then, and the new one is a job like any other."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(done(hand.one(), [job("a", "itself")]))
        claim = hand.one()
        assert (claim.payloads[0].body, claim.attempt) == ("itself", 1)

    @needs("inspect", "queued_jobs")
    def test_what_a_run_enqueued_is_stored_when_it_is_done(self, broker: Broker, clock: ManualClock) -> None:
        """In the same step, with delays counted from the broker's now, also into queues that are new."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        clock.advance(10)
        hand.settle(done(claim, [job("child"), job("later", delay_s=5), job("far", queue="new"), job("a", "itself")]))
        assert keys(hand.claim()) == ["child", "a"]
        assert only(broker, "later").perform_at == clock.now() + 5
        assert broker.status("new", "far") == "queued"

    @needs("inspect", "priorities")
    def test_a_failed_job_comes_back_at_its_retry_time(self, broker: Broker, clock: ManualClock) -> None:
        """Counted as a failure, with its error, due by the broker's clock; the next attempt sees both."""
        put(broker, "a", body="kept", headers={"h": "1"}, priority=3)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        clock.advance(5)
        hand.settle(failed(claim, "ValueError: no", 25, 60.0))
        view = only(broker, "a")
        assert (view.status, view.retry_count, view.error, view.attempt) == ("delayed", 0, "ValueError: no", 1)
        assert (view.perform_at, view.priority) == (clock.now() + 60, 3)
        check_numbers(broker, failed=1, processed=0, retries=1)
        assert hand.claim() == []
        clock.advance(60)
        again = hand.one()
        assert (again.retry_count, again.error, again.attempt) == (0, "ValueError: no", 2)
        assert (again.payloads, again.headers, again.key) == (claim.payloads, {"h": "1"}, "a")

    def test_a_retry_knows_of_the_failures_before_it(self, broker: Broker, clock: ManualClock) -> None:
        """Their number and the last error, which being postponed or released does not clear; the rest is as it was."""
        put(broker, "a", body="kept", headers={"h": "1"})
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "first", 25, 60.0))
        assert hand.claim() == []
        clock.advance(60)
        hand.settle(failed(hand.one(), "second", 25, 0.0))
        hand.settle(postponed(hand.one(), 30.0))
        assert hand.claim() == []
        clock.advance(30)
        hand.settle(released(hand.one()))
        claim = hand.one()
        assert (claim.retry_count, claim.error, claim.attempt) == (1, "second", 4)
        assert ([payload.body for payload in claim.payloads], claim.headers) == (["kept"], {"h": "1"})

    def test_what_a_run_enqueued_is_claimed_after_it(self, broker: Broker, clock: ManualClock) -> None:
        """With delays counted from the broker's now, also into queues that are new."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        clock.advance(10)
        hand.settle(done(claim, [job("child"), job("later", delay_s=5), job("far", queue="new")]))
        assert (keys(hand.claim()), keys(hand.claim(queue="new"))) == (["child"], ["far"])
        clock.advance(5)
        assert keys(hand.claim()) == ["later"]

    def test_the_outbox_is_stored_with_any_verdict(self, broker: Broker) -> None:
        """What is in it has been decided before: a run of many calls fails at one, and the others' jobs are sent."""
        put(broker, *"abcde")
        hand = ScriptedWorker(broker)
        first, second, third, fourth, fifth = hand.claim()
        settlements = [
            failed(first, "no", 25, 60.0),
            postponed(second, 60.0),
            buried(third, "no"),
            released(fourth),
            done(fifth),
        ]
        for settlement in settlements:
            settlement.outbox = [job(f"child of {settlement.claim.key}", delay_s=60, hints=CANCELLABLE)]
        assert hand.settle(*settlements) == []
        assert [broker.status("q", f"child of {key}") for key in "abcde"] == ["delayed"] * 5

    def test_the_outbox_of_the_refused_is_not_stored(self, broker: Broker) -> None:
        """Whatever the verdict: if the claim does not hold any more, the run has not happened."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        stale = hand.one()
        hand.settle(released(stale))
        child = [job("child")]
        for settlement in (
            done(stale, child),
            failed(stale, "no", 25, 60.0, outbox=child),
            buried(stale, "no", outbox=child),
            postponed(stale, 60.0, outbox=child),
            released(stale, outbox=child),
        ):
            assert hand.settle(settlement) == ["a"]
        assert keys(hand.claim()) == ["a"]

    @needs("inspect", "queued_jobs")
    def test_the_error_stays_until_the_job_succeeds(self, broker: Broker, clock: ManualClock) -> None:
        """Being postponed, released or taken back does not clear it."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "first", 25, 0.0))
        hand.settle(postponed(hand.one(), 0.0))
        assert only(broker, "a").error == "first"
        hand.settle(released(hand.one()))
        assert only(broker, "a").error == "first"
        hand.settle(failed(hand.one(), "second", 25, 0.0))
        assert (only(broker, "a").error, only(broker, "a").retry_count) == ("second", 1)

    def test_an_error_may_be_any_text(self, broker: Broker) -> None:
        """Odd characters in a message must not keep a failure from being recorded; lone surrogates may be changed."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(failed(hand.one(), ODD_TEXT, 25, 0.0)) == []
        error = hand.one().error or ""
        assert error.startswith(ODD_TEXT[:-1])
        error.encode()

    @needs("inspect")
    def test_the_error_of_the_dead_may_be_any_text(self, broker: Broker) -> None:
        """As that of a retry."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(buried(hand.one(), ODD_TEXT)) == []
        error = only(broker, "a").error or ""
        assert error.startswith(ODD_TEXT[:-1])
        error.encode()

    def test_a_delay_that_is_no_number_does_not_keep_a_run_from_being_settled(self, broker: Broker) -> None:
        """A user's `retry_in` may return anything; the job must not be stuck for it."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        assert hand.settle(failed(first, "no", 25, float("nan")), failed(second, "no", 25, float("inf"))) == []
        assert (broker.status("q", "a"), broker.status("q", "b")) == ("queued", "delayed")

    def test_a_postponed_job_comes_back_later_uncounted(self, broker: Broker, clock: ManualClock) -> None:
        """It is no failure: `retry_count` stays; that it was started is not forgotten."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(postponed(hand.one(), 30.0)) == []
        assert hand.claim() == []
        clock.advance(30)
        claim = hand.one()
        assert (claim.retry_count, claim.attempt, claim.error) == (-1, 2, None)

    @needs("inspect", "queued_jobs")
    def test_a_postponed_job_is_shown_as_delayed(self, broker: Broker, clock: ManualClock) -> None:
        """And is counted neither as processed nor as failed."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(postponed(hand.one(), 30.0))
        view = only(broker, "a")
        assert (view.status, view.perform_at, view.retry_count) == ("delayed", clock.now() + 30, -1)
        assert (view.attempt, view.error) == (1, None)
        check_numbers(broker, processed=0, failed=0, retries=0)

    @needs("due_order")
    def test_a_released_job_keeps_its_place(self, broker: Broker, clock: ManualClock) -> None:
        """It is due when it was due before, and goes before a job that became due while it was held."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        clock.advance(5)
        put(broker, "b")
        clock.advance(5)
        hand.settle(released(claim))
        first, second = hand.claim()
        assert ((first.key, first.perform_at), second.key) == (("a", claim.perform_at), "b")

    @needs("inspect", "queued_jobs")
    def test_a_released_job_is_as_if_it_had_not_been_claimed(self, broker: Broker, clock: ManualClock) -> None:
        """Its time, its place among others and its attempts are those from before."""
        put(broker, "a", perform_at=clock.now() - 7)
        put(broker, "b", perform_at=clock.now() - 7)
        before = only(broker, "a")
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(limit=1)
        clock.advance(5)
        hand.settle(released(claim))
        assert only(broker, "a") == before
        assert [(claim.key, claim.attempt) for claim in hand.claim()] == [("a", 1), ("b", 1)]

    @needs("inspect")
    def test_a_buried_job_lies_in_the_morgue_with_its_error(self, broker: Broker, clock: ManualClock) -> None:
        """When its retries are used up, or when it asked for it. It is never handed out from there."""
        put(broker, "a", "b", body="kept")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        clock.advance(3)
        hand.settle(failed(first, "boom", 0, 1.0), buried(second, "asked"))
        for key, error in (("a", "boom"), ("b", "asked")):
            view = only(broker, key)
            assert (view.status, view.error, view.updated_at) == ("dead", error, clock.now())
            assert ([payload.body for payload in view.payloads], view.retry_count) == (["kept"], 0)
        check_numbers(broker, dead=2, length=0, failed=2)
        clock.advance(86_400)
        assert hand.claim() == []

    @needs("inspect", "unique_keys")
    def test_burying_a_key_again_merges(self, broker: Broker, clock: ManualClock) -> None:
        """A key lies in the morgue once, with its last error; equal payloads are one."""
        hand = ScriptedWorker(broker)
        for error in ("first", "second"):
            put(broker, "a")
            clock.advance(1)
            hand.settle(buried(hand.one(), error))
        view = only(broker, "a")
        assert (view.error, view.updated_at, len(view.payloads)) == ("second", clock.now(), 1)
        assert numbers(broker).dead == 1

    def test_a_settled_claim_cannot_be_settled_again(self, broker: Broker) -> None:
        """In a later turn, or twice in one: the first counts, the second is refused and sends nothing."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        assert hand.settle(done(first, [job("child")]), failed(first, "no", 25, 0.0, outbox=[job("no child")])) == ["a"]
        assert hand.settle(done(first), done(second)) == ["a"]
        assert keys(hand.claim()) == ["child"]

    @needs("inspect")
    def test_a_settled_claim_is_counted_once(self, broker: Broker) -> None:
        """However often it is settled."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        hand.settle(done(first), done(first))
        hand.settle(done(first), done(second))
        assert numbers(broker).processed == 2

    def test_an_outbox_that_cannot_be_stored_undoes_its_turn(self, broker: Broker) -> None:
        """Nothing is settled, stored or claimed: the worker still holds its claims."""
        put(broker, "a", "b", "c")
        hand = ScriptedWorker(broker)
        first, second = hand.claim(limit=2)
        bad = [job("child"), job("bad", perform_at=float("nan"))]
        with pytest.raises(EnqueueError):
            hand.turn(1, done(first), done(second, bad))
        assert [broker.status("q", claim.key) for claim in (first, second)] == ["running", "running"]
        assert hand.settle(done(first), done(second)) == []
        assert keys(hand.claim()) == ["c"]

    @lacks("keyed")
    def test_a_kind_that_the_broker_lacks_is_refused_in_an_outbox(self, broker: Broker) -> None:
        """As in `enqueue`. It undoes the turn."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        with pytest.raises(EnqueueError):
            hand.settle(done(claim, [job("child"), call("k", "x")]))
        assert (broker.status("q", "a"), broker.status("q", "child")) == ("running", "gone")
        assert hand.settle(done(claim)) == []

    @needs("unique_keys")
    def test_a_buried_key_may_be_enqueued_again(self, broker: Broker) -> None:
        """It is a job like any other then."""
        put(broker, "a", body="first")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        put(broker, "a", body="second")
        assert [payload.body for payload in hand.one().payloads] == ["second"]

    def test_a_run_that_ended_its_process_is_counted_as_a_death(self, broker: Broker) -> None:
        """It is no failure: the retry count and the error stay as they were."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "earlier", 25, 0.0))
        hand.settle(died(hand.one(), "ended"))
        claim = hand.one()
        assert (claim.deaths, claim.retry_count, claim.error, claim.attempt) == (1, 0, "earlier", 3)

    def test_a_stale_settlement_is_refused_and_sends_nothing(self, broker: Broker) -> None:
        """A claim that another took over can only be settled by that one, whatever the verdict."""
        put(broker, "a")
        slow, other = ScriptedWorker(broker, "slow"), ScriptedWorker(broker, "other")
        stale = slow.one()
        slow.settle(released(stale))
        held = other.one()
        child = [job("child")]
        for settlement in (
            done(stale, child),
            failed(stale, "no", 25, 0.0, outbox=child),
            buried(stale, "no", outbox=child),
            postponed(stale, 0.0, outbox=child),
            released(stale, outbox=child),
        ):
            assert slow.settle(settlement) == ["a"]
            assert slow.claim() == []
            assert broker.status("q", "a") == "running"
        assert other.settle(released(held)) == []
        claim = other.one()
        assert (claim.retry_count, claim.error, claim.attempt) == (-1, None, 1)

    @needs("inspect", "queued_jobs")
    def test_a_stale_settlement_changes_nothing_that_is_shown(self, broker: Broker) -> None:
        """Neither the job nor the numbers of its queue."""
        put(broker, "a")
        slow, other = ScriptedWorker(broker, "slow"), ScriptedWorker(broker, "other")
        stale = slow.one()
        slow.settle(released(stale))
        held = other.one()
        for settlement in (
            done(stale, [job("child")]),
            failed(stale, "no", 25, 0.0),
            buried(stale, "no"),
            postponed(stale, 60.0),
            released(stale),
        ):
            assert slow.settle(settlement) == ["a"]
        view = only(broker, "a")
        assert (view.status, view.worker, view.retry_count, view.attempt) == ("running", "other", -1, 1)
        assert broker.status("q", "child") == "gone"
        assert other.settle(done(held)) == []
        check_numbers(broker, processed=1, failed=0, dead=0)

    @needs("inspect", "keyed", "collecting")
    @pytest.mark.parametrize("kind", list(Kind))
    @pytest.mark.parametrize("back", ["renewed without it", "released"])
    def test_a_worker_cannot_settle_its_second_claim_under_the_first_token(
        self, broker: Broker, kind: Kind, back: str
    ) -> None:
        """It may still be running what it has given back: only the token tells the two runs apart."""
        new = {Kind.PLAIN: job("k"), Kind.KEYED: call("k", "a"), Kind.COLLECTING: value("k", "a")}[kind]
        broker.enqueue([new])
        hand = ScriptedWorker(broker)
        stale = hand.one()
        if back == "released":
            hand.settle(released(stale))
        else:
            broker.renew(hand.name, held=[], before=stale.token + 1)
        held = hand.one()
        assert (held.key, held.ref) == (stale.key, stale.ref)
        assert held.token > stale.token
        before, counted, child = broker.inspect.find("q", "k"), numbers(broker), [job("child")]
        for settlement in (
            done(stale),
            done(stale, child),
            failed(stale, "no", 25, 60.0, outbox=child),
            failed(stale, "no", 0, 0.0, outbox=child),
            buried(stale, "no", outbox=child),
            postponed(stale, 60.0, outbox=child),
            released(stale, outbox=child),
            Settlement(stale, "release", done=1),
            Settlement(stale, "retry", died=True),
        ):
            assert hand.settle(settlement) == ["k"]
            assert hand.again().refused == ["k"]
            assert broker.inspect.find("q", "k") == before
        assert (numbers(broker), broker.status("q", "child")) == (counted, "gone")
        assert hand.settle(done(stale), done(held, child)) == ["k"]
        assert (broker.inspect.find("q", "k"), broker.status("q", "child")) == ([], "queued")
        assert numbers(broker).processed == 1

    def test_a_claim_given_back_and_not_yet_taken_cannot_be_settled(self, broker: Broker) -> None:
        """It belongs to nobody: the old token counts for nothing even before there is a new one."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        stale = hand.one()
        hand.settle(released(stale))
        assert hand.settle(done(stale, [job("child")])) == ["a"]
        assert broker.status("q", "a") == "queued"
        assert keys(hand.claim()) == ["a"]

    def test_nobody_settles_what_another_worker_holds(self, broker: Broker) -> None:
        """Not even with its token."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        assert other.settle(done(claim, [job("child")])) == ["a"]
        assert (broker.status("q", "a"), other.claim()) == ("running", [])
        assert hand.settle(done(claim)) == []

    @needs("inspect", "keyed", "collecting")
    def test_counts_beyond_the_payloads_are_cut(self, broker: Broker) -> None:
        """Whatever a settlement says of them, there are no more than there are."""
        calls(broker, "k", "a", "b")
        values(broker, "c", {"a": 1.0})
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        assert hand.settle(Settlement(first, "bury", done=1, buried=9), Settlement(second, "retry", done=9)) == []
        assert places(broker, "k") == {"dead": ["b"]}
        assert places(broker, "c") == {}

    def test_one_refusal_does_not_hold_up_the_others(self, broker: Broker) -> None:
        """Each claim of a turn is settled by itself."""
        put(broker, "a", "b", "c")
        hand = ScriptedWorker(broker)
        first, second, third = hand.claim()
        hand.settle(released(second))
        assert hand.settle(done(first), done(second), done(third, [job("child")])) == ["b"]
        assert keys(hand.claim()) == ["b", "child"]
