"""Tests of cancel, reschedule, revive and delete; and of one payload among those of its key."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.merge import identity_of
from ...jobs.settlement import buried, done, failed, released
from .fixtures import (
    CANCELLABLE,
    BrokerFixtures,
    ScriptedWorker,
    bodies,
    calls,
    check_numbers,
    keys,
    needs,
    numbers,
    only,
    places,
    put,
    scores,
    values,
)


def bury(broker: Broker, hand: ScriptedWorker, *dying: str) -> None:
    """Have jobs run and end in the morgue."""
    put(broker, *dying)
    hand.settle(*(buried(claim, f"error of {claim.key}") for claim in hand.claim()))


class OperateTests(BrokerFixtures):
    @needs("queued_jobs")
    def test_a_queued_job_can_be_cancelled(self, broker: Broker) -> None:
        """Due, delayed or waiting for its retry: it never runs, and that it was cancelled is remembered."""
        put(broker, "retry")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        put(broker, "due")
        put(broker, "later", delay_s=60)
        for key in ("retry", "due", "later"):
            assert broker.cancel("q", key)
            assert broker.status("q", key) == "cancelled"
            assert not broker.cancel("q", key)
        assert hand.claim() == []

    @needs("inspect", "queued_jobs")
    def test_a_cancelled_job_is_not_counted(self, broker: Broker) -> None:
        """Whether it was due or delayed."""
        put(broker, "due")
        put(broker, "later", delay_s=60)
        assert [broker.cancel("q", key) for key in ("due", "later")] == [True, True]
        check_numbers(broker, length=0, delayed=0)

    @needs("queued_jobs")
    def test_what_runs_or_is_gone_or_dead_cannot_be_cancelled(self, broker: Broker) -> None:
        """False, and nothing changes."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "dead")
        put(broker, "running")
        claim = hand.one()
        for key in ("running", "dead", "never"):
            assert not broker.cancel("q", key)
        assert [broker.status("q", key) for key in ("running", "dead", "never")] == ["running", "dead", "gone"]
        assert hand.settle(done(claim)) == []
        assert not broker.cancel("q", "running")

    @needs("queued_jobs")
    def test_a_cancelled_key_may_be_enqueued_again(self, broker: Broker) -> None:
        """It is a job like any other then."""
        put(broker, "a")
        broker.cancel("q", "a")
        put(broker, "a")
        assert broker.status("q", "a") == "queued"
        assert keys(ScriptedWorker(broker).claim()) == ["a"]

    @needs("queued_jobs")
    def test_that_a_job_was_cancelled_is_forgotten_in_the_end(self, broker: Broker, clock: ManualClock) -> None:
        """Not within an hour, but some day."""
        put(broker, "a")
        broker.cancel("q", "a")
        clock.advance(3_600)
        broker.reclaim()
        assert broker.status("q", "a") == "cancelled"
        clock.advance(30 * 86_400)
        broker.reclaim()
        assert broker.status("q", "a") == "gone"

    def test_a_delayed_job_can_be_cancelled(self, broker: Broker, clock: ManualClock) -> None:
        """It never runs, and for a while it is remembered that it was cancelled."""
        put(broker, "a", "b", delay_s=60, hints=CANCELLABLE)
        assert [broker.cancel("q", "a"), broker.cancel("q", "a")] == [True, False]
        assert (broker.status("q", "a"), broker.status("q", "b")) == ("cancelled", "delayed")
        clock.advance(3_600)
        assert keys(ScriptedWorker(broker).claim()) == ["b"]
        assert broker.status("q", "a") == "cancelled"

    @needs("inspect")
    def test_a_delayed_job_can_be_moved_to_another_time(self, broker: Broker, clock: ManualClock) -> None:
        """By a delay from the broker's now, or to a time, earlier or later; nothing else of it changes."""
        put(broker, "a", body="kept", delay_s=3_600, hints=CANCELLABLE)
        before = only(broker, "a")
        assert broker.reschedule("q", "a", delay_s=1_800)
        assert only(broker, "a").perform_at == clock.now() + 1_800
        assert broker.reschedule("q", "a", perform_at=before.perform_at)
        assert only(broker, "a") == before
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        assert broker.reschedule("q", "a")
        claim = hand.one()
        assert (claim.perform_at, claim.payloads[0].body, claim.retry_count) == (clock.now(), "kept", -1)

    @needs("operate", "keyed")
    def test_delayed_jobs_can_be_run_now(self, broker: Broker) -> None:
        """Each counts once, a key with all its calls; what is not there does not count."""
        put(broker, "plain", "other", delay_s=3_600, hints=CANCELLABLE)
        calls(broker, "k", "a", "b", delay_s=3_600)
        assert broker.operate.run_now("q", ["plain", "k", "plain", "never"]) == 2
        hand = ScriptedWorker(broker)
        assert {claim.key: bodies(claim) for claim in hand.claim()} == {"plain": ["{}"], "k": ["a", "b"]}

    @needs("inspect", "queued_jobs")
    def test_a_queued_job_can_be_moved_to_another_time(self, broker: Broker, clock: ManualClock) -> None:
        """By a delay from the broker's now, or to a time, earlier or later; nothing else of it changes."""
        put(broker, "a", body="kept", delay_s=60)
        before = only(broker, "a")
        assert broker.reschedule("q", "a", delay_s=10)
        assert only(broker, "a").perform_at == clock.now() + 10
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        assert broker.reschedule("q", "a", perform_at=-5.0)
        assert broker.reschedule("q", "a", perform_at=before.perform_at)
        assert only(broker, "a") == before
        assert broker.reschedule("q", "a")
        claim = hand.one()
        assert (claim.perform_at, claim.payloads[0].body, claim.retry_count) == (clock.now(), "kept", -1)

    def test_a_moved_job_is_not_due_at_its_old_time(self, broker: Broker, clock: ManualClock) -> None:
        """It runs once, at its new time."""
        put(broker, "a", delay_s=10, hints=CANCELLABLE)
        broker.reschedule("q", "a", delay_s=40)
        hand = ScriptedWorker(broker)
        clock.advance(10)
        assert hand.claim() == []
        clock.advance(30)
        assert keys(hand.claim()) == ["a"]
        assert hand.claim() == []

    @needs("queued_jobs")
    def test_what_runs_or_is_gone_or_dead_cannot_be_moved(self, broker: Broker) -> None:
        """False, and nothing changes."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "dead")
        put(broker, "running")
        before = hand.one()
        for key in ("running", "dead", "never"):
            assert not broker.reschedule("q", key, delay_s=60)
        assert broker.status("q", "dead") == "dead"
        hand.settle(released(before))
        assert hand.one().perform_at == before.perform_at

    @needs("inspect", "operate", "priorities")
    def test_a_revived_job_is_due_now_with_all_its_retries(self, broker: Broker, clock: ManualClock) -> None:
        """Back in the queue with `retry_count` -1; its error is kept until it succeeds."""
        put(broker, "a", body="kept", headers={"h": "1"}, priority=4)
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 0, 0.0))
        clock.advance(100)
        assert broker.operate.revive("q", ["a"]) == 1
        view = only(broker, "a")
        assert (view.status, view.perform_at, view.retry_count, view.error) == ("queued", clock.now(), -1, "no")
        assert (view.updated_at, view.priority, numbers(broker).dead) == (None, 4, 0)
        claim = hand.one()
        assert (claim.payloads[0].body, claim.headers, claim.attempt) == ("kept", {"h": "1"}, 2)

    @needs("inspect", "operate")
    def test_reviving_twice_revives_once(self, broker: Broker) -> None:
        """Never in both places, never in neither; keys that are not in the morgue are passed over."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "a", "b")
        assert broker.operate.revive("q", ["a", "never", "a"]) == 1
        assert broker.operate.revive("q", ["a"]) == 0
        check_numbers(broker, length=1, dead=1)
        assert broker.operate.revive("q", []) == 0

    @needs("inspect", "operate", "unique_keys", "queued_jobs")
    def test_reviving_onto_a_queued_job_merges(self, broker: Broker, clock: ManualClock) -> None:
        """One job, due now, with all its retries."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "a")
        put(broker, "a")
        hand.settle(failed(hand.one(), "again", 25, 60.0))
        assert broker.operate.revive("q", ["a"]) == 1
        view = only(broker, "a")
        assert (view.status, view.retry_count, view.perform_at) == ("queued", -1, clock.now())
        assert len(view.payloads) == 1

    @needs("inspect", "operate", "unique_keys", "queued_jobs")
    def test_a_job_whose_key_is_running_stays_in_the_morgue(self, broker: Broker) -> None:
        """It would have no place in the queue: it can be revived when the run has ended."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "a")
        put(broker, "a")
        claim = hand.one()
        assert broker.operate.revive("q", ["a"]) == 0
        assert [view.status for view in broker.inspect.find("q", "a")] == ["running", "dead"]
        assert hand.settle(done(claim)) == []
        assert broker.operate.revive("q", ["a"]) == 1

    @needs("operate")
    def test_dead_jobs_can_be_deleted(self, broker: Broker) -> None:
        """For good; only what is in the morgue, and the answer says how many that were."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "a", "b", "nul\0key")
        put(broker, "c")
        assert broker.operate.delete_dead("q", ["a", "c", "never", "nul\0key"]) == 2
        assert broker.operate.delete_dead("q", ["a"]) == 0
        statuses = [broker.status("q", key) for key in ("a", "b", "c", "nul\0key")]
        assert statuses == ["gone", "dead", "queued", "gone"]

    @needs("operate", "unique_keys")
    def test_deleting_a_dead_job_leaves_the_queued_one_of_its_key(self, broker: Broker) -> None:
        """A key may be in both places."""
        hand = ScriptedWorker(broker)
        bury(broker, hand, "a")
        put(broker, "a")
        assert broker.operate.delete_dead("q", ["a"]) == 1
        assert broker.status("q", "a") == "queued"
        assert keys(hand.claim()) == ["a"]


class PayloadTests(BrokerFixtures):
    @needs("keyed", "queued_jobs")
    def test_each_call_has_a_status_of_its_own(self, broker: Broker, clock: ManualClock) -> None:
        """Which follows it: delayed, queued, running, dead, gone."""
        calls(broker, "k", "later", delay_s=60)
        calls(broker, "k", "a", "b")
        assert statuses(broker, "a", "later", "never") == ["queued", "delayed", "gone"]
        assert broker.status("q", "k") == "queued"
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "aside")
        assert statuses(broker, "a", "b", "later", "aside") == ["running", "running", "delayed", "queued"]
        hand.settle(buried(claim, "no", done=1))
        assert statuses(broker, "a", "b", "later", "aside") == ["gone", "dead", "delayed", "queued"]
        assert broker.status("q", "k") == "queued"

    @needs("keyed", "queued_jobs")
    def test_a_call_behind_a_head_that_rests_is_delayed(self, broker: Broker, clock: ManualClock) -> None:
        """Whatever its own time."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        assert statuses(broker, "head", "next") == ["delayed", "delayed"]
        clock.advance(60)
        assert statuses(broker, "head", "next") == ["queued", "queued"]

    @needs("operate", "collecting")
    def test_each_value_has_a_status_of_its_own(self, broker: Broker) -> None:
        """Among the payloads of its key."""
        values(broker, "k", {"a": 1.0, "b": 2.0}, delay_s=60)
        a, b, c = map(identity_of, "abc")
        assert statuses(broker, a, b, c) == ["delayed", "delayed", "gone"]
        broker.operate.run_now("q", ["k"])
        hand = ScriptedWorker(broker)
        claim = hand.one(max_payloads=1)
        assert statuses(broker, a, b) == ["running", "queued"]
        hand.settle(buried(claim, "no"))
        assert statuses(broker, a, b) == ["dead", "queued"]

    @needs("inspect", "collecting")
    def test_one_payload_can_be_cancelled(self, broker: Broker, clock: ManualClock) -> None:
        """It never runs, that is remembered, and the others are as before; the last one takes the job along."""
        due = clock.now() + 60
        values(broker, "k", {"a": 1.0, "b": 2.0}, perform_at=due)
        a, b = map(identity_of, "ab")
        assert broker.cancel("q", "k", a)
        assert not broker.cancel("q", "k", a)
        assert statuses(broker, a, b) == ["cancelled", "delayed"]
        assert (bodies(only(broker, "k")), only(broker, "k").perform_at) == (["b"], due)
        assert broker.cancel("q", "k", b)
        assert (broker.inspect.find("q", "k"), numbers(broker).length) == ([], 0)
        assert statuses(broker, a, b) == ["cancelled", "cancelled"]
        assert ScriptedWorker(broker).claim() == []

    @needs("inspect", "keyed")
    def test_a_key_without_its_earliest_call_is_due_with_the_next(self, broker: Broker, clock: ManualClock) -> None:
        """And not before."""
        calls(broker, "k", "soon", delay_s=10)
        calls(broker, "k", "later", delay_s=60)
        assert broker.cancel("q", "k", "soon")
        assert only(broker, "k").perform_at == clock.now() + 60
        clock.advance(59)
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        clock.advance(1)
        assert bodies(hand.one()) == ["later"]

    @needs("keyed", "queued_jobs")
    def test_a_key_without_its_head_does_not_rest(self, broker: Broker) -> None:
        """The failure was the head's: the others start anew."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        assert broker.cancel("q", "k", "head")
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["next"], -1, None)

    @needs("keyed", "queued_jobs")
    def test_a_key_rests_without_a_call_behind_its_head(self, broker: Broker, clock: ManualClock) -> None:
        """It is the head that it waits for."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        assert broker.cancel("q", "k", "next")
        clock.advance(59)
        assert hand.claim() == []
        clock.advance(1)
        claim = hand.one()
        assert (bodies(claim), claim.retry_count, claim.error) == (["head"], 0, "no")

    @needs("keyed", "queued_jobs")
    def test_what_is_set_aside_can_be_cancelled_and_what_runs_not(self, broker: Broker, clock: ManualClock) -> None:
        """The run goes on undisturbed."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        calls(broker, "k", "soon", delay_s=10)
        calls(broker, "k", "later", delay_s=60)
        assert not broker.cancel("q", "k", "a")
        assert not broker.cancel("q", "k")
        assert broker.cancel("q", "k", "soon")
        assert broker.cancel("q", "k", "later")
        assert statuses(broker, "a", "soon", "later") == ["running", "cancelled", "cancelled"]
        assert hand.settle(done(claim)) == []
        assert broker.status("q", "k") == "gone"
        clock.advance(60)
        assert hand.claim() == []

    @needs("inspect", "keyed", "queued_jobs")
    def test_what_is_left_aside_is_shown_with_its_earliest_call(self, broker: Broker, clock: ManualClock) -> None:
        """When all of it was cancelled, nothing is left but what runs."""
        calls(broker, "k", "a")
        ScriptedWorker(broker).one()
        calls(broker, "k", "soon", delay_s=10)
        calls(broker, "k", "later", delay_s=60)
        broker.cancel("q", "k", "soon")
        assert broker.inspect.find("q", "k")[1].perform_at == clock.now() + 60
        broker.cancel("q", "k", "later")
        assert places(broker, "k") == {"running": ["a"]}
        assert numbers(broker).length == 0

    @needs("keyed", "queued_jobs")
    def test_a_call_that_was_cancelled_may_be_enqueued_again(self, broker: Broker) -> None:
        """Then it is not cancelled any more, also when it is done; nor is a key that was cancelled as a whole."""
        hand = ScriptedWorker(broker)
        for identity in ("a", None):
            calls(broker, "k", "a", "b")
            assert broker.cancel("q", "k", identity)
            assert broker.status("q", "k", "a") == "cancelled"
            calls(broker, "k", "a")
            hand.settle(done(hand.one()))
            assert [broker.status("q", "k"), broker.status("q", "k", "a")] == ["gone", "gone"]

    @needs("collecting")
    def test_what_was_cancelled_may_be_enqueued_again(self, broker: Broker) -> None:
        """Then it is not cancelled any more, also when it is done; nor is a key that was cancelled as a whole."""
        hand = ScriptedWorker(broker)
        for identity in (identity_of("a"), None):
            values(broker, "k", {"a": 1.0, "b": 2.0})
            assert broker.cancel("q", "k", identity)
            assert broker.status("q", "k", identity_of("a")) == "cancelled"
            values(broker, "k", {"a": 1.0})
            hand.settle(done(hand.one()))
            assert (broker.status("q", "k"), broker.status("q", "k", identity_of("a"))) == ("gone", "gone")

    @needs("keyed", "queued_jobs")
    def test_a_whole_key_can_be_cancelled(self, broker: Broker) -> None:
        """With all its payloads: none of them comes back with the next one."""
        calls(broker, "k", "a", "b")
        assert broker.cancel("q", "k")
        assert broker.status("q", "k") == "cancelled"
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        calls(broker, "k", "c")
        assert bodies(hand.one()) == ["c"]

    @needs("inspect", "keyed")
    def test_one_call_can_be_moved(self, broker: Broker, clock: ManualClock) -> None:
        """The key is due with its earliest call then."""
        now = clock.now()
        calls(broker, "k", "a", "b", delay_s=30)
        assert broker.reschedule("q", "k", "b", delay_s=10)
        assert (only(broker, "k").perform_at, scores(only(broker, "k"))) == (now + 10, {"b": now + 10, "a": now + 30})
        assert broker.reschedule("q", "k", "b", perform_at=now + 90)
        assert (only(broker, "k").perform_at, scores(only(broker, "k"))) == (now + 30, {"a": now + 30, "b": now + 90})
        clock.advance(30)
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["a"]
        assert broker.reschedule("q", "k", "b", perform_at=now + 80)
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == now + 80

    @needs("keyed", "queued_jobs")
    def test_a_call_that_runs_or_is_not_there_cannot_be_moved(self, broker: Broker) -> None:
        """False, and the run goes on."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert [broker.reschedule("q", "k", id, delay_s=10) for id in ("a", "never")] == [False, False]
        assert hand.settle(done(claim)) == []

    @needs("keyed", "queued_jobs")
    def test_moving_a_head_moves_the_rest_of_its_key(self, broker: Broker, clock: ManualClock) -> None:
        """It stays the head; moving another call does not wake the key."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 60.0))
        assert broker.reschedule("q", "k", "next", perform_at=-5.0)
        assert hand.claim() == []
        assert broker.reschedule("q", "k", "head", delay_s=10)
        clock.advance(9)
        assert hand.claim() == []
        clock.advance(1)
        claim = hand.one()
        assert (bodies(claim), claim.retry_count) == (["head", "next"], 0)

    @needs("keyed", "queued_jobs")
    def test_moving_a_key_to_a_later_time_lets_it_rest(self, broker: Broker, clock: ManualClock) -> None:
        """No call of it runs before, not even one that comes with an earlier time; the order stands."""
        now = clock.now()
        calls(broker, "k", "a")
        calls(broker, "k", "b", delay_s=30)
        assert broker.reschedule("q", "k", perform_at=now + 60)
        calls(broker, "k", "early", perform_at=-5.0)
        clock.advance(59)
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        clock.advance(1)
        assert bodies(hand.one()) == ["early", "a", "b"]

    @needs("inspect", "keyed")
    def test_moving_a_key_to_an_earlier_time_takes_its_calls_along(self, broker: Broker, clock: ManualClock) -> None:
        """Those that were due later are due then."""
        now = clock.now()
        calls(broker, "k", "a", delay_s=30)
        calls(broker, "k", "b", delay_s=60)
        assert broker.reschedule("q", "k", perform_at=now + 10)
        assert scores(only(broker, "k")) == {"a": now + 10, "b": now + 10}
        calls(broker, "k", "c", delay_s=5)
        assert only(broker, "k").perform_at == now + 5
        clock.advance(10)
        assert bodies(ScriptedWorker(broker).one()) == ["c", "a", "b"]

    @needs("inspect", "keyed", "queued_jobs")
    def test_a_key_that_rests_is_due_with_its_calls_all_the_same(self, broker: Broker, clock: ManualClock) -> None:
        """It rests until a time; if all its calls are due later than that, so is the key."""
        now = clock.now()
        calls(broker, "k", "a")
        assert broker.reschedule("q", "k", perform_at=now + 10)
        calls(broker, "k", "b", perform_at=now + 60)
        assert broker.cancel("q", "k", "a")
        assert only(broker, "k").perform_at == now + 60
        assert broker.reschedule("q", "k", "b", perform_at=now + 30)
        assert only(broker, "k").perform_at == now + 30
        clock.advance(15)
        hand = ScriptedWorker(broker)
        assert hand.claim() == []
        clock.advance(15)
        assert bodies(hand.one()) == ["b"]

    @needs("inspect", "collecting")
    def test_a_collecting_job_is_moved_as_a_whole(self, broker: Broker, clock: ManualClock) -> None:
        """With or without a payload named, if it is there."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        assert broker.reschedule("q", "k", identity_of("b"), delay_s=10)
        assert only(broker, "k").perform_at == clock.now() + 10
        assert broker.reschedule("q", "k", delay_s=-1)
        assert not broker.reschedule("q", "k", identity_of("never"), delay_s=10)
        assert bodies(ScriptedWorker(broker).one()) == ["a", "b"]

    @needs("inspect", "keyed", "collecting")
    def test_what_is_set_aside_can_be_moved_by_payload(self, broker: Broker, clock: ManualClock) -> None:
        """The key that is being run cannot, nor can what runs."""
        now = clock.now()
        values(broker, "v", {"a": 1.0})
        calls(broker, "c", "x")
        hand = ScriptedWorker(broker)
        running = hand.claim()
        values(broker, "v", {"a": 1.0, "b": 2.0})
        calls(broker, "c", "y", "z")
        assert broker.status("q", "v", identity_of("a")) == "queued", "set aside anew, and that can be moved"
        assert broker.reschedule("q", "v", identity_of("b"), perform_at=now + 10)
        assert broker.reschedule("q", "c", "z", perform_at=now - 10)
        assert broker.reschedule("q", "c", "y", perform_at=now + 20)
        assert not broker.reschedule("q", "c", "x", perform_at=now)
        assert not broker.reschedule("q", "c", perform_at=now)
        assert [broker.inspect.find("q", key)[1].perform_at for key in "vc"] == [now + 10, now - 10]
        assert broker.status("q", "c", "y") == "delayed"
        hand.settle(*map(done, running))
        assert [(claim.key, bodies(claim)) for claim in hand.claim()] == [("c", ["z"])]


def statuses(broker: Broker, *identities: str) -> list[str]:
    return [broker.status("q", "k", identity) for identity in identities]
