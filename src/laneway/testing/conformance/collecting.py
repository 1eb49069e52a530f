"""Collecting jobs: the values of one key, gathered and handed over together by score."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import Kind, Payload
from ...jobs.merge import identity_of
from ...jobs.settlement import buried, done, failed, postponed, released
from .fixtures import Hand, Kit, bodies, keys, numbers, only, places, scores, value, values


class Collecting(Kit):
    def test_values_come_by_score_then_by_their_bytes(self, broker: Broker) -> None:
        """In one claim. Bytes are those of UTF-8, so that every broker agrees."""
        values(broker, "k", {"z": 1.0, "🚲": 2.0, "\uff5e": 2.0, "Z": 2.0, "a": 2.0, "": 2.0, "first": -3.5})
        claim = Hand(broker).one()
        assert bodies(claim) == ["first", "z", "", "Z", "a", "\uff5e", "🚲"]
        assert (claim.kind, claim.key, claim.retry_count, claim.attempt) == (Kind.COLLECTING, "k", -1, 1)

    def test_a_value_comes_out_as_it_went_in(self, broker: Broker) -> None:
        """Not a bit of its score is lost, nor a character of it."""
        body = '{"n":1e400,"s":"a\0b\\" 🚲"}'
        broker.enqueue([value("k", body, score=0.1 + 0.2, headers={"of": "nobody"})])
        assert only(broker, "k").payloads == [Payload(body, 0.1 + 0.2, identity_of(body))]
        claim = Hand(broker).one()
        assert claim.payloads == [Payload(body, 0.1 + 0.2, identity_of(body))]
        assert claim.headers is None

    def test_scores_may_be_very_large_very_small_and_very_near(self, broker: Broker) -> None:
        """They are floats, and compare as such."""
        given = {
            "a": -1e289,
            "b": -1.0,
            "c": -5e-324,
            "d": 0.0,
            "e": 5e-324,
            "f": 1.0,
            "g": 1.0000000000000002,
            "h": 1e289,
        }
        values(broker, "k", dict(reversed(given.items())))
        assert scores(Hand(broker).one()) == given

    def test_equal_values_are_one_payload(self, broker: Broker) -> None:
        """In one call and across calls; the same value under another key is another."""
        broker.enqueue([value("k", "v"), value("k", "v"), value("l", "v")])
        broker.enqueue([value("k", "v"), value("k", "w")])
        assert places(broker, "k") == {"queued": ["v", "w"]}
        assert places(broker, "l") == {"queued": ["v"]}

    def test_values_without_a_score_keep_the_order_of_arrival(self, broker: Broker, clock: ManualClock) -> None:
        """Within one call, within one tick, and when the clock steps back."""
        expected = [f"v{99 - n}" for n in range(90)]
        broker.enqueue([value("k", body) for body in expected[:60]])
        for body in expected[60:75]:
            broker.enqueue([value("k", body)])
        clock.step(-3_600)
        broker.enqueue([value("k", body) for body in expected[75:]])
        assert bodies(only(broker, "k")) == expected

    def test_a_score_that_was_not_given_is_larger_than_any_of_the_key(self, broker: Broker, clock: ManualClock) -> None:
        """Of those queued, running and set aside; also where a microsecond more makes no difference."""
        values(broker, "k", {"running": 5e15})
        values(broker, "huge", {"given": 1e30})
        hand = Hand(broker)
        claim = next(claim for claim in hand.claim() if claim.key == "k")
        values(broker, "k", {"aside": None})
        values(broker, "k", {"given": 6e15})
        values(broker, "k", {"last": None})
        values(broker, "huge", {"larger": None})
        hand.settle(failed(claim, "no", 25, 0.0))
        assert bodies(only(broker, "k")) == ["running", "aside", "given", "last"]
        assert scores(broker.find("q", "huge")[1])["larger"] > 1e30
        values(broker, "fresh", {"v": None})
        assert scores(only(broker, "fresh")) == {"v": clock.now()}

    def test_a_thousand_values_of_a_key_are_in_a_claim(self, broker: Broker) -> None:
        """The rest follow at once, in order; a turn may ask for more or fewer."""
        expected = [f"v{n:04}" for n in range(2_500)]
        broker.enqueue([value("k", body, score=float(n)) for n, body in enumerate(expected)])
        hand = Hand(broker)
        got: list[str] = []
        sizes: list[int] = []
        for most in (7, None, None, 2_000):
            claim = hand.one(max_payloads=most)
            got += bodies(claim)
            sizes.append(len(claim.payloads))
            hand.settle(done(claim))
        assert (got, sizes) == (expected, [7, 1_000, 1_000, 493])
        assert broker.status("q", "k") == "gone"

    def test_what_one_claim_has_left_is_due_when_it_is_done(self, broker: Broker, clock: ManualClock) -> None:
        """At the time of the job that it is a part of: others have not come before it since."""
        values(broker, "k", {"a": 1.0, "b": 2.0}, perform_at=clock.now() - 50)
        values(broker, "l", {"c": 1.0}, perform_at=clock.now() - 20)
        hand = Hand(broker)
        (claim,) = hand.claim(1, max_payloads=1)
        assert places(broker, "k") == {"running": ["a"], "queued": ["b"]}
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == clock.now() - 50
        assert keys(hand.claim()) == ["k", "l"]

    def test_values_that_come_while_their_key_runs_are_set_aside(self, broker: Broker) -> None:
        """Also one that is equal to a running one: it may have come too late for the run to see it."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand, other = Hand(broker), Hand(broker, "worker-2")
        claim = hand.one()
        values(broker, "k", {"b": 0.5, "c": 3.0})
        assert other.claim() == []
        assert places(broker, "k") == {"running": ["a", "b"], "queued": ["b", "c"]}
        assert scores(broker.find("q", "k")[0]) == {"a": 1.0, "b": 2.0}
        assert (numbers(broker).length, numbers(broker).busy) == (1, 1)
        hand.settle(done(claim))
        assert bodies(other.one()) == ["b", "c"]

    def test_a_failure_is_all_of_it(self, broker: Broker, clock: ManualClock) -> None:
        """Every payload comes back at the retry time; enqueueing does not wake it earlier."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        values(broker, "k", {"c": 0.0})
        view = only(broker, "k")
        assert (bodies(view), view.retry_count, view.error) == (["c", "a", "b"], 0, "no")
        assert (view.perform_at, view.attempt) == (clock.now() + 60, 1)
        assert (numbers(broker).failed, numbers(broker).retries) == (1, 1)
        clock.advance(60)
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.attempt) == (["c", "a", "b"], 0, 2)
        hand.settle(done(claim))
        assert broker.status("q", "k") == "gone"

    def test_when_retries_are_used_up_the_smallest_score_is_buried(self, broker: Broker, clock: ManualClock) -> None:
        """One payload; what is left goes back with all its retries, due now."""
        values(broker, "k", {"b": 2.0, "a": 1.0, "c": 3.0}, perform_at=clock.now() - 60)
        hand = Hand(broker)
        claim = hand.one()
        values(broker, "k", {"d": 0.0}, delay_s=600)
        clock.advance(5)
        hand.settle(failed(claim, "boom", 0, 0.0))
        queued, dead = broker.find("q", "k")
        assert (bodies(queued), queued.retry_count, queued.error) == (["d", "b", "c"], -1, None)
        assert (queued.perform_at, queued.attempt, queued.status) == (clock.now(), 0, "queued")
        assert (scores(dead), dead.error, dead.updated_at) == ({"a": 1.0}, "boom", clock.now())

    def test_a_run_that_asks_for_it_buries_all_it_was_given(self, broker: Broker, clock: ManualClock) -> None:
        """And nothing that came meanwhile: that is due now."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand = Hand(broker)
        claim = hand.one()
        values(broker, "k", {"c": 3.0}, delay_s=600)
        hand.settle(buried(claim, "asked"))
        queued, dead = broker.find("q", "k")
        assert (bodies(queued), queued.perform_at, bodies(dead)) == (["c"], clock.now(), ["a", "b"])
        assert (dead.size, numbers(broker).dead) == (2, 1)

    def test_postponed_and_released_jobs_keep_their_values(self, broker: Broker, clock: ManualClock) -> None:
        """Later, or as it was; neither counts."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        before = broker.find("q", "k")
        hand = Hand(broker)
        hand.settle(released(hand.one()))
        assert broker.find("q", "k") == before
        hand.settle(postponed(hand.one(), 30.0))
        view = only(broker, "k")
        assert (scores(view), view.perform_at, view.retry_count) == ({"a": 1.0, "b": 2.0}, clock.now() + 30, -1)

    def test_twenty_thousand_values_are_one_job(self, broker: Broker) -> None:
        """Views show how many there are, and the first of them."""
        for thousand in range(20):
            broker.enqueue([value("k", f"v{thousand}-{n}", score=float(n)) for n in range(1_000)])
        view = only(broker, "k")
        assert (view.size, len(view.payloads)) == (20_000, 1_000)
        assert {payload.score for payload in view.payloads} == set(map(float, range(50)))
        (listed,) = broker.listing("q", "queued").jobs
        assert (listed.size, len(listed.payloads)) == (20_000, 10)
        claim = Hand(broker).one()
        assert claim.payloads == view.payloads
