"""Tests of collecting jobs: the values of one key are collected and handed over together, by score.

Merging too: what becomes of payloads, times and counts when two jobs of one key meet. And debounce: a job that is
due when no more payloads have come for a while.
"""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import Debounce, Kind, Payload
from ...jobs.merge import identity_of
from ...jobs.settlement import buried, done, failed, postponed, released
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    bodies,
    check_numbers,
    declare_dead,
    keys,
    needs,
    numbers,
    only,
    places,
    scores,
    value,
    values,
)


@needs("collecting")
class CollectingTests(BrokerFixtures):
    def test_values_come_by_score_then_by_their_bytes(self, broker: Broker) -> None:
        """In one claim. Bytes are those of UTF-8, so that every broker agrees."""
        values(broker, "k", {"z": 1.0, "🚲": 2.0, "\uff5e": 2.0, "Z": 2.0, "a": 2.0, "": 2.0, "first": -3.5})
        claim = ScriptedWorker(broker).one()
        assert bodies(claim) == ["first", "z", "", "Z", "a", "\uff5e", "🚲"]
        assert (claim.kind, claim.key, claim.retry_count, claim.attempt) == (Kind.COLLECTING, "k", -1, 1)

    @needs("inspect")
    def test_a_value_comes_out_as_it_went_in(self, broker: Broker) -> None:
        """Not a bit of its score is lost, nor a character of it."""
        body = '{"n":1e400,"s":"a\0b\\" 🚲"}'
        broker.enqueue([value("k", body, score=0.1 + 0.2, headers={"of": "nobody"})])
        assert only(broker, "k").payloads == [Payload(body, 0.1 + 0.2, identity_of(body))]
        claim = ScriptedWorker(broker).one()
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
        assert scores(ScriptedWorker(broker).one()) == given

    @needs("inspect")
    def test_equal_values_are_one_payload(self, broker: Broker) -> None:
        """In one call and across calls; the same value under another key is another."""
        broker.enqueue([value("k", "v"), value("k", "v"), value("l", "v")])
        broker.enqueue([value("k", "v"), value("k", "w")])
        assert places(broker, "k") == {"queued": ["v", "w"]}
        assert places(broker, "l") == {"queued": ["v"]}

    @needs("inspect")
    def test_values_without_a_score_keep_the_order_of_arrival(self, broker: Broker, clock: ManualClock) -> None:
        """Within one call, within one tick, and when the clock steps back."""
        expected = [f"v{99 - n}" for n in range(90)]
        broker.enqueue([value("k", body) for body in expected[:60]])
        for body in expected[60:75]:
            broker.enqueue([value("k", body)])
        clock.step(-3_600)
        broker.enqueue([value("k", body) for body in expected[75:]])
        assert bodies(only(broker, "k")) == expected

    @needs("inspect")
    def test_a_score_that_was_not_given_is_larger_than_any_of_the_key(self, broker: Broker, clock: ManualClock) -> None:
        """Of those queued, running and set aside; also where a microsecond more makes no difference."""
        values(broker, "k", {"running": 5e15})
        values(broker, "huge", {"given": 1e30})
        hand = ScriptedWorker(broker)
        claim = next(claim for claim in hand.claim() if claim.key == "k")
        values(broker, "k", {"aside": None})
        values(broker, "k", {"given": 6e15})
        values(broker, "k", {"last": None})
        values(broker, "huge", {"larger": None})
        hand.settle(failed(claim, "no", 25, 0.0))
        assert bodies(only(broker, "k")) == ["running", "aside", "given", "last"]
        assert scores(broker.inspect.find("q", "huge")[1])["larger"] > 1e30
        values(broker, "fresh", {"v": None})
        assert scores(only(broker, "fresh")) == {"v": clock.now()}

    def test_a_thousand_values_of_a_key_are_in_a_claim(self, broker: Broker) -> None:
        """The rest follow at once, in order; a turn may ask for more or fewer."""
        expected = [f"v{n:04}" for n in range(2_500)]
        broker.enqueue([value("k", body, score=float(n)) for n, body in enumerate(expected)])
        hand = ScriptedWorker(broker)
        got: list[str] = []
        sizes: list[int] = []
        for most in (7, None, None, 2_000):
            claim = hand.one(max_payloads=most)
            got += bodies(claim)
            sizes.append(len(claim.payloads))
            hand.settle(done(claim))
        assert (got, sizes) == (expected, [7, 1_000, 1_000, 493])
        assert broker.status("q", "k") == "gone"

    @needs("inspect")
    def test_what_one_claim_has_left_is_due_when_it_is_done(self, broker: Broker, clock: ManualClock) -> None:
        """At the time of the job that it is a part of: others have not come before it since."""
        values(broker, "k", {"a": 1.0, "b": 2.0}, perform_at=clock.now() - 50)
        values(broker, "l", {"c": 1.0}, perform_at=clock.now() - 20)
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(1, max_payloads=1)
        assert places(broker, "k") == {"running": ["a"], "queued": ["b"]}
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == clock.now() - 50
        assert keys(hand.claim()) == ["k", "l"]

    @needs("inspect")
    def test_values_that_come_while_their_key_runs_are_set_aside(self, broker: Broker) -> None:
        """Also one that is equal to a running one: it may have come too late for the run to see it."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        values(broker, "k", {"b": 0.5, "c": 3.0})
        assert other.claim() == []
        assert places(broker, "k") == {"running": ["a", "b"], "queued": ["b", "c"]}
        assert scores(broker.inspect.find("q", "k")[0]) == {"a": 1.0, "b": 2.0}
        check_numbers(broker, length=1, busy=1)
        hand.settle(done(claim))
        assert bodies(other.one()) == ["b", "c"]

    @needs("inspect")
    def test_a_failure_is_all_of_it(self, broker: Broker, clock: ManualClock) -> None:
        """Every payload comes back at the retry time; enqueueing does not wake it earlier."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        values(broker, "k", {"c": 0.0})
        view = only(broker, "k")
        assert (bodies(view), view.retry_count, view.error) == (["c", "a", "b"], 0, "no")
        assert (view.perform_at, view.attempt) == (clock.now() + 60, 1)
        check_numbers(broker, failed=1, retries=1)
        clock.advance(60)
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.attempt) == (["c", "a", "b"], 0, 2)
        hand.settle(done(claim))
        assert broker.status("q", "k") == "gone"

    @needs("inspect")
    def test_when_retries_are_used_up_the_smallest_score_is_buried(self, broker: Broker, clock: ManualClock) -> None:
        """One payload; what is left goes back with all its retries, due now."""
        values(broker, "k", {"b": 2.0, "a": 1.0, "c": 3.0}, perform_at=clock.now() - 60)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        values(broker, "k", {"d": 0.0}, delay_s=600)
        clock.advance(5)
        hand.settle(failed(claim, "boom", 0, 0.0))
        queued, dead = broker.inspect.find("q", "k")
        assert (bodies(queued), queued.retry_count, queued.error) == (["d", "b", "c"], -1, None)
        assert (queued.perform_at, queued.attempt, queued.status) == (clock.now(), 0, "queued")
        assert (scores(dead), dead.error, dead.updated_at) == ({"a": 1.0}, "boom", clock.now())

    @needs("inspect")
    def test_a_run_that_asks_for_it_buries_all_it_was_given(self, broker: Broker, clock: ManualClock) -> None:
        """And nothing that came meanwhile: that is due now."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand = ScriptedWorker(broker)
        claim = hand.one()
        values(broker, "k", {"c": 3.0}, delay_s=600)
        hand.settle(buried(claim, "asked"))
        queued, dead = broker.inspect.find("q", "k")
        assert (bodies(queued), queued.perform_at, bodies(dead)) == (["c"], clock.now(), ["a", "b"])
        assert (dead.size, numbers(broker).dead) == (2, 1)

    @needs("inspect")
    def test_postponed_and_released_jobs_keep_their_values(self, broker: Broker, clock: ManualClock) -> None:
        """Later, or as it was; neither counts."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        before = broker.inspect.find("q", "k")
        hand = ScriptedWorker(broker)
        hand.settle(released(hand.one()))
        assert broker.inspect.find("q", "k") == before
        hand.settle(postponed(hand.one(), 30.0))
        view = only(broker, "k")
        assert (scores(view), view.perform_at, view.retry_count) == ({"a": 1.0, "b": 2.0}, clock.now() + 30, -1)

    @needs("inspect")
    def test_twenty_thousand_values_are_one_job(self, broker: Broker) -> None:
        """Views show how many there are, and the first of them."""
        for thousand in range(20):
            broker.enqueue([value("k", f"v{thousand}-{n}", score=float(n)) for n in range(1_000)])
        view = only(broker, "k")
        assert (view.size, len(view.payloads)) == (20_000, 1_000)
        assert {payload.score for payload in view.payloads} == set(map(float, range(50)))
        (listed,) = broker.inspect.listing("q", "queued").jobs
        assert (listed.size, len(listed.payloads)) == (20_000, 10)
        claim = ScriptedWorker(broker).one()
        assert claim.payloads == view.payloads


@needs("inspect", "collecting")
class MergeTests(BrokerFixtures):
    def test_the_worked_example(self, broker: Broker, clock: ManualClock) -> None:
        """{v1: 1, v2: 2} and {v2: 3, v3: 4} make {v1: 1, v2: 2, v3: 4}, with the time and count of the queued job."""
        values(broker, "k", {"v1": 1, "v2": 2})
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        due = clock.now() + 60
        clock.advance(5)
        values(broker, "k", {"v2": 3, "v3": 4}, perform_at=clock.now() - 100)
        view = only(broker, "k")
        assert scores(view) == {"v1": 1, "v2": 2, "v3": 4}
        assert (view.retry_count, view.perform_at, view.error) == (0, due, "no")

    def test_onto_a_queued_job_the_smaller_score_stays(self, broker: Broker) -> None:
        """Whichever came first."""
        values(broker, "k", {"a": 5.0, "b": 5.0, "c": 5.0})
        values(broker, "k", {"a": 4.0, "b": 6.0, "c": 5.0})
        assert scores(only(broker, "k")) == {"a": 4.0, "b": 5.0, "c": 5.0}
        values(broker, "k", {"a": -4.0, "b": -6.0})
        assert scores(only(broker, "k")) == {"b": -6.0, "a": -4.0, "c": 5.0}

    def test_a_score_that_was_not_given_changes_none_that_was(self, broker: Broker) -> None:
        """In either direction: the payload is there already, and stays where it is."""
        values(broker, "k", {"small": 1.0, "huge": 1e30})
        values(broker, "k", {"small": None, "huge": None})
        assert scores(only(broker, "k")) == {"small": 1.0, "huge": 1e30}

    def test_onto_a_queued_job_the_time_stays(self, broker: Broker, clock: ManualClock) -> None:
        """Enqueueing moves it neither earlier nor later."""
        due = clock.now() + 60
        values(broker, "k", {"a": 1.0}, perform_at=due)
        values(broker, "k", {"b": 1.0}, perform_at=due - 30)
        values(broker, "k", {"c": 1.0}, perform_at=due + 30)
        values(broker, "k", {"d": 1.0})
        view = only(broker, "k")
        assert (view.perform_at, view.retry_count, view.size) == (due, -1, 4)
        assert ScriptedWorker(broker).claim() == []

    def test_within_one_call_of_enqueue_too(self, broker: Broker, clock: ManualClock) -> None:
        """The first decides about the time, the smaller score wins."""
        broker.enqueue([value("k", "a", score=2.0, delay_s=10), value("k", "a", score=1.0), value("k", "b", score=0.0)])
        view = only(broker, "k")
        assert (scores(view), view.perform_at) == ({"b": 0.0, "a": 1.0}, clock.now() + 10)

    def test_while_the_key_runs_the_new_time_is_that_of_the_next_run(self, broker: Broker, clock: ManualClock) -> None:
        """Set aside with a count of its own; the first one set aside decides about the time."""
        values(broker, "k", {"a": 1.0}, perform_at=clock.now() - 5)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 0.0))
        claim = hand.one()
        values(broker, "k", {"b": 2.0}, delay_s=30)
        values(broker, "k", {"c": 3.0, "b": 1.0})
        running, aside = broker.inspect.find("q", "k")
        assert (scores(running), running.retry_count) == ({"a": 1.0}, 0)
        assert (scores(aside), aside.retry_count, aside.error) == ({"b": 1.0, "c": 3.0}, -1, None)
        assert (aside.perform_at, aside.status, aside.attempt) == (clock.now() + 30, "delayed", 0)
        hand.settle(done(claim))
        after = only(broker, "k")
        assert (scores(after), after.retry_count, after.error) == ({"b": 1.0, "c": 3.0}, -1, None)
        assert (after.perform_at, after.attempt) == (clock.now() + 30, 0)

    def test_a_failure_takes_in_what_was_set_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score; time and count are those of the failure."""
        values(broker, "k", {"a": 1.0, "b": 2.0, "c": 3.0})
        hand = ScriptedWorker(broker)
        claim = hand.one()
        values(broker, "k", {"b": 1.5, "c": 9.0, "d": 4.0}, perform_at=-5.0)
        hand.settle(failed(claim, "no", 25, 60.0))
        view = only(broker, "k")
        assert scores(view) == {"a": 1.0, "b": 1.5, "c": 3.0, "d": 4.0}
        assert (view.perform_at, view.retry_count, view.error) == (clock.now() + 60, 0, "no")

    @needs("operate")
    def test_reviving_takes_in_what_is_queued(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score, due now, with all retries; the error of the queued job stays."""
        values(broker, "k", {"a": 1.0, "b": 2.0, "c": 3.0})
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "dead"))
        values(broker, "k", {"b": 1.0, "c": 4.0, "d": 5.0})
        hand.settle(failed(hand.one(), "failed", 25, 60.0))
        clock.advance(5)
        assert broker.operate.revive("q", ["k"]) == 1
        view = only(broker, "k")
        assert scores(view) == {"a": 1.0, "b": 1.0, "c": 3.0, "d": 5.0}
        assert (view.perform_at, view.retry_count, view.error) == (clock.now(), -1, "failed")

    @needs("operate")
    def test_reviving_while_the_key_runs_sets_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Never beside the run; due now, with whatever else was set aside."""
        values(broker, "k", {"a": 1.0})
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "dead"))
        values(broker, "k", {"b": 2.0})
        claim = hand.one()
        values(broker, "k", {"a": 0.5, "c": 3.0}, delay_s=600)
        assert broker.operate.revive("q", ["k"]) == 1
        assert hand.claim() == []
        assert places(broker, "k") == {"running": ["b"], "queued": ["a", "c"]}
        hand.settle(done(claim))
        view = only(broker, "k")
        assert (scores(view), view.perform_at, view.retry_count) == ({"a": 0.5, "c": 3.0}, clock.now(), -1)

    def test_what_a_dead_worker_held_takes_in_what_was_set_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score; time and count are its own from before."""
        due = clock.now() - 7
        values(broker, "k", {"a": 1.0, "b": 2.0}, perform_at=due)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 3.0))
        clock.advance(3)
        due = hand.one().perform_at
        values(broker, "k", {"a": 3.0, "b": 0.5, "c": 4.0}, delay_s=600)
        declare_dead(broker, hand)
        assert broker.reclaim() == 1
        view = only(broker, "k")
        assert scores(view) == {"b": 0.5, "a": 1.0, "c": 4.0}
        assert (view.perform_at, view.retry_count, view.error, view.attempt) == (due, 0, "no", 2)
        assert bodies(ScriptedWorker(broker, "worker-2").one()) == ["b", "a", "c"]


QUIET = Debounce(10.0)


def add(broker: Broker, body: str, quiet: Debounce = QUIET) -> float:
    """Enqueue a payload that waits for quiet; returns when its job is due."""
    broker.enqueue([value("k", body, quiet=quiet)])
    return broker.inspect.find("q", "k")[-1].perform_at


@needs("inspect", "collecting")
class DebounceTests(BrokerFixtures):
    def test_every_payload_starts_the_quiet_anew(self, broker: Broker, clock: ManualClock) -> None:
        """Also one that was there already; the job is due when nothing has come for so long."""
        hand = ScriptedWorker(broker)
        for body in ("a", "b", "a", "c"):
            assert add(broker, body) == clock.now() + 10
            clock.advance(9)
            assert hand.claim() == []
        clock.advance(1)
        assert sorted(bodies(hand.one())) == ["a", "b", "c"]

    def test_it_does_not_wait_for_ever(self, broker: Broker, clock: ManualClock) -> None:
        """No longer than `max_wait_s` after the first payload."""
        quiet = Debounce(10.0, max_wait_s=25.0)
        first = clock.now()
        for n, due in enumerate((10.0, 18.0, 25.0, 25.0)):
            assert add(broker, f"v{n}", quiet) == first + due
            clock.advance(8)
        assert clock.now() == first + 32

    def test_enough_payloads_end_the_wait(self, broker: Broker, clock: ManualClock) -> None:
        """Payloads count, not how often one was enqueued."""
        quiet = Debounce(10.0, max_size=3)
        for body in ("a", "b", "a", "b"):
            assert add(broker, body, quiet) == clock.now() + 10
        clock.advance(1)
        assert add(broker, "c", quiet) == clock.now()
        assert len(bodies(ScriptedWorker(broker).one())) == 3

    def test_a_job_that_is_due_keeps_its_place(self, broker: Broker, clock: ManualClock) -> None:
        """However much comes while no worker is free: it has waited long enough, by size or by time."""
        large = Debounce(10.0, max_size=2)
        add(broker, "a", large)
        due = add(broker, "b", large)
        assert due == clock.now()
        clock.advance(3)
        assert add(broker, "c", large) == due
        broker.enqueue([value("other", "a", quiet=QUIET)])
        due = only(broker, "other").perform_at
        clock.advance(11)
        broker.enqueue([value("other", "b", quiet=QUIET)])
        assert only(broker, "other").perform_at == due

    def test_a_wait_ends_with_the_payload_that_began_it(self, broker: Broker, clock: ManualClock) -> None:
        """What is set aside after it was cancelled has a time of its own, and does not wait."""
        broker.enqueue([value("k", "running")])
        ScriptedWorker(broker).one()
        add(broker, "a")
        assert broker.cancel("q", "k", identity_of("a"))
        broker.enqueue([value("k", "b", delay_s=1_000.0)])
        assert add(broker, "c") == clock.now() + 1_000

    def test_one_may_be_enough(self, broker: Broker, clock: ManualClock) -> None:
        assert add(broker, "a", Debounce(10.0, max_size=1)) == clock.now()

    def test_a_job_with_a_time_of_its_own_does_not_wait(self, broker: Broker, clock: ManualClock) -> None:
        """What decided about its time was no quiet, so quiet does not move it."""
        due = clock.now() + 3
        broker.enqueue([value("k", "a", perform_at=due)])
        assert add(broker, "b") == due

    def test_a_payload_with_a_time_of_its_own_does_not_end_the_wait(self, broker: Broker, clock: ManualClock) -> None:
        """The job is queued, and enqueueing onto it does not move it."""
        due = add(broker, "a")
        clock.advance(5)
        broker.enqueue([value("k", "b", perform_at=-5.0)])
        assert only(broker, "k").perform_at == due
        clock.advance(1)
        assert add(broker, "c") == clock.now() + 10

    def test_a_job_that_failed_does_not_wait_for_quiet(self, broker: Broker, clock: ManualClock) -> None:
        """Its retry time stands, and after its success quiet begins anew."""
        add(broker, "a")
        clock.advance(10)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 3.0))
        due = clock.now() + 3
        clock.advance(1)
        assert add(broker, "b") == due
        clock.advance(2)
        hand.settle(done(hand.one()))
        assert add(broker, "c") == clock.now() + 10

    def test_what_is_set_aside_waits_for_quiet_by_itself(self, broker: Broker, clock: ManualClock) -> None:
        """From its own first payload on, and on after the run has ended."""
        quiet = Debounce(10.0, max_wait_s=15.0)
        add(broker, "a", quiet)
        clock.advance(10)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        first = clock.now()
        assert add(broker, "b", quiet) == first + 10
        clock.advance(4)
        assert add(broker, "c", quiet) == first + 14
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == first + 14
        clock.advance(4)
        assert add(broker, "d", quiet) == first + 15
        clock.advance(7)
        assert sorted(bodies(hand.one())) == ["b", "c", "d"]

    def test_what_one_claim_has_left_does_not_wait(self, broker: Broker, clock: ManualClock) -> None:
        """It is due already: more payloads do not put it off."""
        due = add(broker, "a")
        add(broker, "b")
        clock.advance(10)
        hand = ScriptedWorker(broker)
        claim = hand.one(max_payloads=1)
        assert add(broker, "c") == due
        hand.settle(done(claim))
        assert add(broker, "d") == due

    @needs("operate")
    def test_moving_a_job_ends_its_wait(self, broker: Broker, clock: ManualClock) -> None:
        """Whoever said when it is to run is not overruled by a payload."""
        add(broker, "a")
        broker.reschedule("q", "k", delay_s=60)
        due = clock.now() + 60
        assert add(broker, "b") == due
        assert broker.operate.run_now("q", ["k"]) == 1
        assert add(broker, "c") == clock.now()

    def test_the_quiet_wakes_a_waiter(self, broker: Broker, clock: ManualClock) -> None:
        """It is a due time like any other."""
        add(broker, "a")
        assert broker.wait(["q"], 0.0) == set()
        clock.advance(10)
        assert broker.wait(["q"], 0.0) == {"q"}
