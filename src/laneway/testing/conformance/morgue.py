"""Tests of the morgue by payload: bury, revive, delete; and of run_now, bury_failed and delete_failed."""

from __future__ import annotations

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import Kind
from ...jobs.settlement import buried, done, failed
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    attempts,
    bodies,
    calls,
    keys,
    needs,
    numbers,
    only,
    places,
    put,
    scores,
    values,
)


class MorgueTests(BrokerFixtures):
    @needs("inspect", "collecting")
    def test_burying_a_key_again_unites_its_payloads(self, broker: Broker, clock: ManualClock) -> None:
        """One row with the last error; equal payloads keep the smaller score."""
        hand = ScriptedWorker(broker)
        for given, error in (({"a": 1.0, "b": 5.0}, "first"), ({"b": 2.0, "c": 3.0}, "second"), ({"a": 9.0}, "third")):
            values(broker, "k", given)
            clock.advance(1)
            hand.settle(buried(hand.one(), error))
        view = only(broker, "k")
        assert scores(view) == {"a": 1.0, "b": 2.0, "c": 3.0}
        assert (view.error, view.updated_at, view.kind, view.size) == ("third", clock.now(), Kind.COLLECTING, 3)
        assert numbers(broker).dead == 1

    @needs("inspect", "keyed")
    def test_calls_lie_in_the_morgue_in_order(self, broker: Broker, clock: ManualClock) -> None:
        """By due time, then arrival, in whatever order they were buried."""
        now = clock.now()
        calls(broker, "k", "b", perform_at=now - 2)
        calls(broker, "k", "c", perform_at=now - 1)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "a", perform_at=now - 3)
        hand.settle(buried(claim, "first"))
        hand.settle(buried(hand.one(), "second"))
        hand.settle(buried(hand.one(), "third"))
        view = only(broker, "k")
        assert bodies(view) == ["a", "b", "c"]
        assert (scores(view), view.error) == ({"a": now - 3, "b": now - 2, "c": now - 1}, "third")

    @needs("inspect", "operate", "collecting", "priorities")
    def test_a_revived_key_has_all_its_payloads_back(self, broker: Broker, clock: ManualClock) -> None:
        """Due now, with all its retries; its error is kept until it succeeds."""
        values(broker, "k", {"a": 1.0, "b": 2.0}, priority=3)
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        clock.advance(100)
        assert broker.operate.revive("q", ["k", "k", "never"]) == 1
        view = only(broker, "k")
        assert (scores(view), view.status, view.kind) == ({"a": 1.0, "b": 2.0}, "queued", Kind.COLLECTING)
        assert (view.perform_at, view.retry_count, view.error) == (clock.now(), -1, "no")
        assert (view.attempt, view.priority, view.updated_at) == (0, 3, None)
        claim = hand.one()
        assert (bodies(claim), claim.error) == (["a", "b"], "no")
        hand.settle(done(claim))
        assert broker.inspect.find("q", "k") == []

    @needs("operate", "keyed", "due_order")
    def test_revived_calls_are_due_now_and_in_order(self, broker: Broker, clock: ManualClock) -> None:
        """By their due times as ever: before those that were due later, behind those that were due earlier."""
        now = clock.now()
        calls(broker, "k", "b", perform_at=now - 20)
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        calls(broker, "k", "c", perform_at=now - 10)
        calls(broker, "k", "a", perform_at=now - 30)
        calls(broker, "k", "d", delay_s=600)
        assert broker.operate.revive("q", ["k"]) == 1
        claim = hand.one()
        assert attempts(claim) == {"a": 1, "b": 2, "c": 1}
        assert scores(claim)["b"] == now - 20

    @needs("operate", "keyed")
    def test_a_call_buried_before_its_time_is_revived_for_now(self, broker: Broker, clock: ManualClock) -> None:
        """Reviving means now, also when the clock has stepped back since."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        clock.step(-100)
        assert broker.operate.revive("q", ["k"]) == 1
        assert bodies(hand.one()) == ["a"]

    @needs("inspect", "operate", "keyed", "queued_jobs")
    def test_reviving_behind_a_head_does_not_overtake_it(self, broker: Broker, clock: ManualClock) -> None:
        """The key does not rest any longer, but its order stands."""
        calls(broker, "k", "dead", perform_at=-10.0)
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        calls(broker, "k", "head", "next")
        hand.settle(failed(hand.one(), "no", 5, 600.0))
        assert broker.operate.revive("q", ["k"]) == 1
        view = only(broker, "k")
        assert (view.perform_at, view.retry_count) == (clock.now(), -1)
        assert bodies(hand.one()) == ["head", "dead", "next"]

    @needs("inspect", "operate", "keyed", "queued_jobs")
    def test_revived_calls_are_set_aside_while_their_key_runs(self, broker: Broker, clock: ManualClock) -> None:
        """They are the next to run, and nothing runs beside."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        calls(broker, "k", "b")
        claim = hand.one()
        calls(broker, "k", "later", delay_s=60)
        assert broker.operate.revive("q", ["k"]) == 1
        assert hand.claim() == []
        assert places(broker, "k") == {"running": ["b"], "queued": ["a", "later"]}
        hand.settle(done(claim))
        assert bodies(hand.one()) == ["a"]

    @needs("inspect", "operate", "keyed", "collecting")
    def test_a_key_of_another_kind_is_not_revived(self, broker: Broker) -> None:
        """It stays in the morgue and can be revived when the other is gone."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        values(broker, "k", {"v": 1.0})
        assert broker.operate.revive("q", ["k"]) == 0
        assert places(broker, "k") == {"queued": ["v"], "dead": ["a"]}
        hand.settle(done(hand.one()))
        assert broker.operate.revive("q", ["k"]) == 1
        assert bodies(hand.one()) == ["a"]

    @needs("inspect", "operate", "collecting")
    def test_dead_keys_are_deleted_with_all_their_payloads(self, broker: Broker) -> None:
        """And nothing of what is queued or runs under the same key."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        values(broker, "k", {"a": 1.0})
        assert broker.operate.delete_dead("q", ["k"]) == 1
        assert places(broker, "k") == {"queued": ["a"]}
        assert broker.operate.revive("q", ["k"]) == 0

    @needs("inspect", "operate", "keyed", "collecting")
    def test_jobs_that_failed_are_due_when_they_are_told_to(self, broker: Broker, clock: ManualClock) -> None:
        """`run_now`: retries and delayed ones, each counted once; not what runs or is gone."""
        put(broker, "later", delay_s=60)
        put(broker, "running")
        values(broker, "values", {"a": 1.0}, delay_s=60)
        calls(broker, "calls", "x", "y", delay_s=60)
        hand = ScriptedWorker(broker)
        hand.one()
        calls(broker, "head", "h", "i")
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        clock.advance(1)
        names = ["later", "values", "calls", "head"]
        assert broker.operate.run_now("q", [*names, "later", "running", "never"]) == 4
        for name in names:
            assert only(broker, name).perform_at == clock.now()
        assert only(broker, "head").retry_count == 0
        claims = {claim.key: bodies(claim) for claim in hand.claim()}
        assert claims == {"later": ["{}"], "values": ["a"], "calls": ["x", "y"], "head": ["h", "i"]}

    @needs("inspect", "operate", "queued_jobs")
    def test_running_now_does_not_move_what_is_due(self, broker: Broker, clock: ManualClock) -> None:
        """It would lose its place; it counts all the same."""
        put(broker, "a", perform_at=clock.now() - 5)
        before = broker.inspect.find("q", "a")
        assert broker.operate.run_now("q", ["a"]) == 1
        assert broker.inspect.find("q", "a") == before

    @needs("inspect", "operate", "keyed", "queued_jobs")
    def test_running_a_key_now_takes_its_delayed_calls_along(self, broker: Broker, clock: ManualClock) -> None:
        """Also if its first call is due already: the key keeps its place, and the due calls keep their order."""
        due = clock.now() - 5
        calls(broker, "k", "later", perform_at=clock.now() + 3_600)
        calls(broker, "k", "b", perform_at=clock.now() - 2)
        calls(broker, "k", "a", perform_at=due)
        calls(broker, "k", "soon", delay_s=60)
        assert broker.operate.run_now("q", ["k"]) == 1
        assert only(broker, "k").perform_at == due
        assert scores(only(broker, "k")) == {"a": due, "b": due + 3, "later": clock.now(), "soon": clock.now()}
        assert [broker.status("q", "k", id) for id in ("a", "later", "soon")] == ["queued"] * 3
        calls(broker, "k", "new")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["a", "b", "later", "soon", "new"]
        assert hand.settle(done(claim)) == []
        assert broker.inspect.find("q", "k") == []

    @needs("inspect", "operate", "keyed", "queued_jobs")
    @pytest.mark.parametrize("rest_s", [0.0, 60.0])
    def test_running_a_key_now_keeps_its_failed_call_first(
        self, broker: Broker, clock: ManualClock, rest_s: float
    ) -> None:
        """Whether or not its retry is due already; nothing of the failure is forgotten."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, rest_s))
        calls(broker, "k", "later", delay_s=3_600)
        calls(broker, "k", "early", perform_at=-5.0)
        assert broker.operate.run_now("q", ["k"]) == 1
        view = only(broker, "k")
        assert (bodies(view), view.perform_at) == (["head", "early", "next", "later"], clock.now())
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["head", "early", "next", "later"], 0, "no")

    @needs("inspect", "operate", "keyed", "collecting")
    def test_what_failed_can_be_buried_without_waiting(self, broker: Broker, clock: ManualClock) -> None:
        """A plain job, the head of a key, all of a collecting one; with the error and the count that they have."""
        fail_each(broker)
        clock.advance(1)
        assert broker.operate.bury_failed("q", ["plain", "calls", "values", "fresh", "running", "never"]) == 3
        assert places(broker, "plain") == {"dead": ["{}"]}
        assert places(broker, "calls") == {"queued": ["next"], "dead": ["head"]}
        assert places(broker, "values") == {"dead": ["a", "b"]}
        for key in ("plain", "calls", "values"):
            dead = broker.inspect.find("q", key)[-1]
            assert (dead.error, dead.retry_count, dead.updated_at) == ("no", 0, clock.now())
        assert (only(broker, "fresh").status, only(broker, "running").status) == ("queued", "running")
        left = broker.inspect.find("q", "calls")[0]
        assert (left.retry_count, left.error, left.attempt) == (-1, None, 0)
        assert attempts(left) == {"next": 0}
        assert broker.operate.bury_failed("q", ["plain", "calls", "values"]) == 0
        assert set(keys(ScriptedWorker(broker, "worker-2").claim())) == {"fresh", "calls"}

    @needs("inspect", "operate", "keyed", "collecting")
    def test_what_failed_can_be_deleted(self, broker: Broker) -> None:
        """The same, and gone for good."""
        fail_each(broker)
        assert broker.operate.delete_failed("q", ["plain", "calls", "values", "fresh", "running", "never"]) == 3
        assert [places(broker, key) for key in ("plain", "values")] == [{}, {}]
        assert places(broker, "calls") == {"queued": ["next"]}
        assert numbers(broker).dead == 0
        assert (broker.status("q", "fresh"), broker.status("q", "running")) == ("queued", "running")
        assert broker.operate.delete_failed("q", ["calls"]) == 0


def fail_each(broker: Broker) -> None:
    """A job of each kind that failed, one that is fresh and one that runs."""
    put(broker, "plain")
    calls(broker, "calls", "head", "next")
    values(broker, "values", {"a": 1.0, "b": 2.0})
    hand = ScriptedWorker(broker)
    hand.settle(*(failed(claim, "no", 5, 60.0) for claim in hand.claim()))
    put(broker, "running", "fresh")
    hand.claim(limit=1)
