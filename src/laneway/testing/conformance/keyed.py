"""Keyed jobs: the calls of one key, in order and one claim at a time."""

from __future__ import annotations

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import EnqueueError
from ...jobs.data import Kind, Payload
from ...jobs.settlement import done, released
from .fixtures import Hand, Kit, bodies, call, calls, job, keys, numbers, only, places, put, value


class Keyed(Kit):
    def test_a_key_that_waits_for_a_wrong_clock_can_be_run_now(self, broker: Broker, clock: ManualClock) -> None:
        """What was enqueued by a clock that went ahead is due now, and so is what comes after it."""
        calls(broker, "k", "a")
        clock.step(-86_400.0)
        calls(broker, "k", "b")
        assert only(broker, "k").perform_at == clock.now() + 86_400
        assert broker.run_now("q", ["k"]) == 1
        calls(broker, "k", "c")
        claim = Hand(broker).one()
        assert bodies(claim) == ["a", "b", "c"]
        calls(broker, "k", "d")
        assert broker.find("q", "k")[1].perform_at == clock.now()

    @pytest.mark.parametrize("back", [0.5, 3_600.0])
    def test_calls_keep_the_order_of_their_arrival_when_the_clock_steps_back(
        self, broker: Broker, clock: ManualClock, back: float
    ) -> None:
        """Those that were given no time wait for those before them; one with a time of its own does not."""
        calls(broker, "k", "a", "b")
        clock.step(-back)
        calls(broker, "k", "c")
        calls(broker, "k", "early", perform_at=clock.now() - 1)
        hand = Hand(broker)
        claim = hand.one()
        assert bodies(claim) == ["early"]
        calls(broker, "k", "d", "e")
        hand.settle(done(claim))
        clock.advance(back)
        assert bodies(hand.one()) == ["a", "b", "c", "d", "e"]

    def test_a_plain_job_may_leave_its_id_as_a_key(self, broker: Broker) -> None:
        """What a run enqueues is stored when its own job is gone."""
        put(broker, "a")
        hand = Hand(broker)
        assert hand.settle(done(hand.one(), [call("a", "next")])) == []
        assert places(broker, "a") == {"queued": ["next"]}

    def test_a_key_of_another_kind_is_named(self, broker: Broker) -> None:
        """Whoever has to find out which of many runs is to blame is told the queue and the key."""
        put(broker, "a")
        with pytest.raises(EnqueueError, match="belongs to a plain job") as caught:
            broker.enqueue([call("b", "1"), call("a", "1")])
        assert caught.value.place == ("q", "a")
        assert broker.find("q", "b") == []

    def test_calls_of_a_key_come_together_by_due_time_then_arrival(self, broker: Broker, clock: ManualClock) -> None:
        """In one claim, whatever the order in which they came."""
        now = clock.now()
        calls(broker, "k", "second", "third", perform_at=now - 5)
        calls(broker, "k", "fourth")
        calls(broker, "k", "first", perform_at=now - 10)
        claim = Hand(broker).one()
        assert bodies(claim) == ["first", "second", "third", "fourth"]
        assert (claim.kind, claim.key, claim.perform_at, claim.attempt) == (Kind.KEYED, "k", now - 10, 1)

    def test_a_call_comes_out_as_it_went_in(self, broker: Broker, clock: ManualClock) -> None:
        """Its id, its body, its own due time as its score, its own headers; handed out once."""
        at = clock.now() - 1.0000001
        broker.enqueue([call("k", "c-1", body='{"a":"\0🚲"}', perform_at=at, headers={"h": "1"}), call("k", "c-2")])
        claim = Hand(broker).one()
        assert claim.payloads == [
            Payload('{"a":"\0🚲"}', at, "c-1", 1, {"h": "1"}),
            Payload("c-2", clock.now(), "c-2", 1, None),
        ]
        assert claim.headers is None

    def test_calls_within_one_instant_keep_their_order(self, broker: Broker) -> None:
        """Within one call of enqueue and across them."""
        calls(broker, "k", *(f"c{n}" for n in range(30)))
        for n in range(30, 40):
            calls(broker, "k", f"c{n}")
        assert bodies(Hand(broker).one()) == [f"c{n}" for n in range(40)]

    def test_two_equal_calls_are_two_payloads(self, broker: Broker) -> None:
        """They are told apart by their ids, never by what is in them."""
        broker.enqueue([call("k", "c-1", body="same"), call("k", "c-2", body="same")])
        claim = Hand(broker).one()
        assert [(payload.identity, payload.body) for payload in claim.payloads] == [("c-1", "same"), ("c-2", "same")]

    def test_the_same_call_again_changes_nothing(self, broker: Broker, clock: ManualClock) -> None:
        """While it is queued, and while it runs: a repeat is harmless."""
        calls(broker, "k", "a", "b")
        before = broker.find("q", "k")
        calls(broker, "k", "a", perform_at=clock.now() - 60, body="other")
        assert broker.find("q", "k") == before
        hand = Hand(broker)
        claim = hand.one()
        calls(broker, "k", "b", delay_s=5)
        assert places(broker, "k") == {"running": ["a", "b"]}
        hand.settle(done(claim))
        assert broker.status("q", "k") == "gone"

    def test_a_call_that_is_due_later_holds_nobody_back(self, broker: Broker, clock: ManualClock) -> None:
        """Nor is it handed out before its time."""
        calls(broker, "k", "later", delay_s=60)
        calls(broker, "k", "now")
        hand = Hand(broker)
        claim = hand.one()
        assert bodies(claim) == ["now"]
        assert places(broker, "k") == {"running": ["now"], "delayed": ["later"]}
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == clock.now() + 60
        clock.advance(59)
        assert hand.claim() == []
        clock.advance(1)
        assert bodies(hand.one()) == ["later"]

    def test_a_key_is_due_with_its_earliest_call(self, broker: Broker, clock: ManualClock) -> None:
        """A later one does not move it, an earlier one does."""
        for delay_s, due in ((60.0, 60.0), (90.0, 60.0), (10.0, 10.0)):
            calls(broker, "k", f"c{delay_s}", delay_s=delay_s)
            assert only(broker, "k").perform_at == clock.now() + due
        assert broker.status("q", "k") == "delayed"

    def test_a_hundred_calls_of_a_key_are_in_a_claim(self, broker: Broker) -> None:
        """The rest follow at once, in order; a turn may ask for more or fewer."""
        expected = [f"c{n:03}" for n in range(250)]
        calls(broker, "k", *expected)
        hand = Hand(broker)
        got: list[str] = []
        sizes: list[int] = []
        for most in (7, None, None, 500):
            claim = hand.one(max_payloads=most)
            got += bodies(claim)
            sizes.append(len(claim.payloads))
            hand.settle(done(claim))
        assert (got, sizes) == (expected, [7, 100, 100, 43])
        assert broker.status("q", "k") == "gone"

    def test_a_key_that_runs_is_handed_to_nobody_else(self, broker: Broker, clock: ManualClock) -> None:
        """What comes meanwhile is set aside, however long that takes, and is next when the run has ended."""
        calls(broker, "k", "a")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        claim = hand.one()
        calls(broker, "k", "b")
        clock.advance(3_600)
        calls(broker, "k", "c")
        assert hand.claim() == []
        assert other.claim() == []
        assert places(broker, "k") == {"running": ["a"], "queued": ["b", "c"]}
        hand.settle(done(claim))
        assert bodies(other.one()) == ["b", "c"]

    def test_other_keys_go_on_meanwhile(self, broker: Broker) -> None:
        """Exclusion is per key, not per shard: "3", "5", "7" and "8" are in one."""
        calls(broker, "3", "slow")
        hand = Hand(broker)
        hand.one()
        for key in ("5", "7", "8", "3"):
            calls(broker, key, f"call of {key}")
        assert keys(hand.claim(shards=[1])) == ["5", "7", "8"]

    def test_the_job_set_aside_is_a_fresh_one(self, broker: Broker, clock: ManualClock) -> None:
        """It is shown beside the one that runs, and counted as queued."""
        calls(broker, "k", "a")
        hand = Hand(broker)
        hand.one()
        calls(broker, "k", "late", delay_s=30)
        calls(broker, "k", "soon", delay_s=10)
        running, aside = broker.find("q", "k")
        assert (running.status, running.worker, running.size) == ("running", hand.name, 1)
        assert (aside.status, aside.worker, aside.size) == ("delayed", None, 2)
        assert (aside.perform_at, aside.retry_count, aside.attempt) == (clock.now() + 10, -1, 0)
        assert (numbers(broker).length, numbers(broker).fresh, numbers(broker).delayed) == (1, 1, 1)
        assert (numbers(broker).busy, broker.status("q", "k")) == (1, "running")
        clock.advance(10)
        assert (numbers(broker).delayed, numbers(broker).lag) == (0, 0.0)

    def test_done_is_done_with_all_that_was_handed_out(self, broker: Broker, clock: ManualClock) -> None:
        """Counted once, in keys; what is next starts anew."""
        calls(broker, "k", "a", "b", "c")
        hand = Hand(broker)
        claim = hand.one(max_payloads=2)
        hand.settle(done(claim))
        assert (numbers(broker).processed, numbers(broker).length) == (1, 1)
        claim = hand.one()
        assert (bodies(claim), claim.attempt, claim.retry_count) == (["c"], 1, -1)

    def test_calls_that_come_with_a_settlement_are_next(self, broker: Broker) -> None:
        """A run that enqueues for its own key: in the same step, and not beside itself."""
        calls(broker, "k", "a")
        hand = Hand(broker)
        answer = hand.turn(10, done(hand.one(), [call("k", "b"), call("k", "c")]))
        assert [bodies(claim) for claim in answer.claims] == [["b", "c"]]

    def test_a_key_that_gives_way_does_not_lose_its_place(self, broker: Broker) -> None:
        """Released, it is as it was: its time, its place among other keys, its attempts."""
        calls(broker, "k", "a", "b")
        calls(broker, "l", "c")
        before = broker.find("q", "k")
        hand = Hand(broker)
        (claim,) = hand.claim(1)
        hand.settle(released(claim))
        assert broker.find("q", "k") == before
        assert keys(hand.claim()) == ["k", "l"]

    def test_the_kinds_of_a_key_are_not_mixed(self, broker: Broker) -> None:
        """A key belongs to what is stored under it; nothing of the whole enqueue is stored."""
        put(broker, "plain")
        calls(broker, "keyed", "a")
        broker.enqueue([value("collecting", "v")])
        hand = Hand(broker)
        for _ in range(2):  # queued, then running
            for bad in (call("plain", "x"), value("plain", "x"), call("collecting", "x"), value("keyed", "x")):
                with pytest.raises(EnqueueError, match=bad.key):
                    broker.enqueue([job("good"), call("other", "x"), bad])
                assert (broker.status("q", "good"), broker.status("q", "other")) == ("gone", "gone")
            hand.claim()
        with pytest.raises(EnqueueError, match="twice"):
            broker.enqueue([call("twice", "x"), value("twice", "x")])
        assert broker.status("q", "twice") == "gone"
