"""Tests of leases: which workers live, which are declared dead, and where the claims of the dead go.

Deaths too: what a broker counts when the process that ran a job has died, and for which job or call.
"""

from __future__ import annotations

import msgspec
import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import LeaseLost
from ...jobs.data import Claim, JobView, StartedRun, WorkerView
from ...jobs.settlement import BURIED_AT, buried, died, done, failed, released
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    attempts,
    bodies,
    call,
    calls,
    declare_dead,
    job,
    keys,
    needs,
    only,
    put,
    value,
    values,
)


class LeaseTests(BrokerFixtures):
    @needs("inspect", "leases")
    def test_a_worker_that_joined_is_known(self, broker: Broker, clock: ManualClock) -> None:
        """With its lease, which counts from the first renewal on."""
        ScriptedWorker(broker, lease_s=12.5)
        ((counter, lease_s),) = broker.leases().values()
        assert lease_s == 12.5
        (view,) = broker.inspect.workers()
        assert isinstance(view, WorkerView)
        assert (view.id, view.host, view.pid, view.queues) == ("worker-1", "localhost", 1, ["q"])
        assert (view.concurrency, view.lease_s, view.dead, view.busy) == (5, 12.5, False, 0)
        assert (view.started_at, view.seen_at) == (clock.now(), clock.now())
        broker.renew("worker-1", [], 0)
        assert broker.leases()["worker-1"][0] > counter

    def test_joining_again_is_harmless(self, broker: Broker) -> None:
        """The answer may have been lost: the repeat neither fails nor loses what the worker holds."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        ScriptedWorker(broker)
        assert hand.settle(done(claim)) == []

    @needs("inspect")
    def test_a_worker_that_joins_again_is_shown_once(self, broker: Broker) -> None:
        """It is the same worker."""
        ScriptedWorker(broker)
        ScriptedWorker(broker)
        assert len(broker.inspect.workers()) == 1

    @needs("inspect")
    def test_joining_again_tells_which_shards_a_worker_serves(self, broker: Broker, clock: ManualClock) -> None:
        """Nothing else of it changes."""
        hand = ScriptedWorker(broker)
        broker.renew(hand.name, [], 0)
        (before,) = broker.inspect.workers()
        assert before.shards == {}
        clock.advance(5)
        broker.join(msgspec.structs.replace(before, host="elsewhere", lease_s=1.0, shards={"q": [0, 2], "other": []}))
        (after,) = broker.inspect.workers()
        assert msgspec.structs.replace(after, seen_at=before.seen_at) == msgspec.structs.replace(
            before, shards={"q": [0, 2], "other": []}
        )

    @needs("leases")
    def test_joining_again_renews_no_lease(self, broker: Broker) -> None:
        """An observer that counts renewals must not take it for one."""
        hand = ScriptedWorker(broker)
        before = broker.leases()[hand.name]
        ScriptedWorker(broker, lease_s=1.0)
        assert broker.leases()[hand.name] == before

    def test_an_unknown_worker_has_no_lease_to_work_under(self, broker: Broker) -> None:
        """Neither turn nor renewal: LeaseLost."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.name = "nobody"
        with pytest.raises(LeaseLost):
            hand.claim()
        with pytest.raises(LeaseLost):
            broker.renew("nobody", [], 0)
        assert broker.status("q", "a") == "queued"

    @needs("leases")
    def test_a_lease_that_was_renewed_cannot_be_ended(self, broker: Broker) -> None:
        """An observer must have seen the counter unchanged; one that is behind does no harm."""
        hand = ScriptedWorker(broker)
        counter, _ = broker.leases()[hand.name]
        broker.renew(hand.name, [], 0)
        assert not broker.declare_dead(hand.name, counter)
        assert not broker.declare_dead("nobody", 0)
        assert hand.claim() == []
        assert declare_dead(broker, hand)

    @needs("leases")
    def test_death_is_final(self, broker: Broker) -> None:
        """Neither a turn, nor a renewal, nor joining again under the same id brings a worker back."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(limit=1)
        assert declare_dead(broker, hand)
        with pytest.raises(LeaseLost):
            hand.turn(1, done(claim, [job("child")]))
        with pytest.raises(LeaseLost):
            hand.again()
        with pytest.raises(LeaseLost):
            broker.renew(hand.name, [claim.token], 0)
        broker.reclaim()
        ScriptedWorker(broker)
        with pytest.raises(LeaseLost):
            hand.claim()
        assert (broker.status("q", "b"), broker.status("q", "child")) == ("queued", "gone")
        assert hand.name not in broker.leases()

    @needs("inspect", "leases")
    def test_the_dead_are_shown_for_an_hour(self, broker: Broker, clock: ManualClock) -> None:
        """Then `reclaim` forgets them."""
        hand = ScriptedWorker(broker)
        declare_dead(broker, hand)
        broker.reclaim()
        assert [(view.id, view.dead) for view in broker.inspect.workers()] == [(hand.name, True)]
        clock.advance(3_601)
        broker.reclaim()
        assert broker.inspect.workers() == []
        with pytest.raises(LeaseLost):
            hand.claim()

    @needs("leases")
    def test_declaring_dead_gives_nothing_back_by_itself(self, broker: Broker) -> None:
        """Death comes first, giving back after it; every sweep repeats that for all who are dead."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        declare_dead(broker, hand)
        assert other.claim() == []
        assert broker.reclaim() == 1
        claim = other.one()
        assert (claim.key, claim.attempt) == ("a", 2)

    @needs("leases")
    def test_a_job_taken_back_is_as_it_was_before(self, broker: Broker, clock: ManualClock) -> None:
        """No failure is counted; but that it was handed out is, since it may have been started."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.settle(failed(hand.one(), "earlier", 25, 5.0))
        clock.advance(5)
        perform_at = hand.one().perform_at
        declare_dead(broker, hand)
        clock.advance(60)
        assert broker.reclaim() == 1
        again = other.one()
        assert (again.retry_count, again.error, again.perform_at) == (0, "earlier", perform_at)
        assert again.attempt == 3

    @needs("leases")
    def test_the_dead_cannot_settle_what_was_taken_over(self, broker: Broker) -> None:
        """Its settlement is not even looked at; the new holder's is taken."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        stale = hand.one()
        declare_dead(broker, hand)
        broker.reclaim()
        held = other.one()
        assert held.token > stale.token
        with pytest.raises(LeaseLost):
            hand.settle(done(stale))
        assert other.settle(done(stale)) == ["a"]
        assert other.settle(done(held)) == []

    @needs("leases")
    def test_reclaim_leaves_the_living_alone(self, broker: Broker) -> None:
        """And is harmless when repeated."""
        put(broker, "a", "b")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.claim(limit=1)
        (held,) = other.claim()
        declare_dead(broker, hand)
        assert [broker.reclaim(), broker.reclaim()] == [1, 0]
        assert other.settle(done(held)) == []

    def test_renewing_gives_back_what_the_worker_does_not_know_of(self, broker: Broker) -> None:
        """Claims older than `before` whose answer was lost: never started, so the attempt is not counted."""
        put(broker, "lost", "held", "young")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        (lost,), (held,), (young,) = (hand.claim(limit=1) for _ in range(3))
        broker.renew(hand.name, held=[held.token], before=young.token)
        assert [broker.status("q", claim.key) for claim in (lost, held, young)] == ["queued", "running", "running"]
        again = other.one()
        assert (again.key, again.attempt) == ("lost", 1)
        assert hand.settle(done(lost), done(held), done(young)) == ["lost"]

    def test_the_token_of_a_claim_that_was_given_back_keeps_no_later_one(self, broker: Broker) -> None:
        """Of the same worker and the same key: what counts is the token of the claim that it holds now."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        first = hand.one()
        broker.renew(hand.name, held=[], before=first.token + 1)
        second = hand.one()
        broker.renew(hand.name, held=[second.token], before=second.token + 1)
        broker.renew(hand.name, held=[], before=first.token + 1)
        assert broker.status("q", "a") == "running"
        broker.renew(hand.name, held=[first.token], before=second.token + 1)
        assert broker.status("q", "a") == "queued"
        assert hand.settle(done(second)) == ["a"]

    def test_renewing_gives_back_nothing_of_others(self, broker: Broker) -> None:
        """A worker speaks for itself."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = other.one()
        broker.renew(hand.name, held=[], before=claim.token + 1)
        assert other.settle(done(claim)) == []

    def test_a_worker_that_leaves_gives_back_all_it_holds(self, broker: Broker) -> None:
        """In every queue, and says how many."""
        broker.enqueue([job("a"), job("b", queue="other")])
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        hand.one(queue="other")
        assert broker.leave(hand.name) == 2
        assert keys(other.claim() + other.claim(queue="other")) == ["a", "b"]

    @needs("inspect")
    def test_a_worker_that_left_is_not_shown(self, broker: Broker) -> None:
        """The others are."""
        hand = ScriptedWorker(broker)
        ScriptedWorker(broker, "worker-2")
        broker.leave(hand.name)
        assert [view.id for view in broker.inspect.workers()] == ["worker-2"]

    @needs("leases")
    def test_what_a_worker_gives_back_counts_as_handed_out(self, broker: Broker) -> None:
        """It may have been started."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.one()
        broker.leave(hand.name)
        assert ScriptedWorker(broker, "worker-2").one().attempt == 2

    def test_leaving_again_is_harmless(self, broker: Broker) -> None:
        """So is leaving without having joined. Whoever has left has no lease any more."""
        hand = ScriptedWorker(broker)
        assert [broker.leave(hand.name), broker.leave(hand.name), broker.leave("nobody")] == [0, 0, 0]
        with pytest.raises(LeaseLost):
            hand.claim()


def started(claim: Claim, number: int = 0, *, token: int | None = None) -> StartedRun:
    """A run that had begun: of a keyed claim, of this call."""
    return StartedRun(claim.queue, claim.key, claim.token if token is None else token, claim.payloads[number].identity)


def deaths(of: Claim | JobView) -> dict[str, int]:
    """How often the process that ran each call has died, in order."""
    return {payload.body: payload.deaths for payload in of.payloads}


def crash(broker: Broker, number: int) -> None:
    """Claim the one job that is due, and have the process die that runs it."""
    hand = ScriptedWorker(broker, f"crashed-{number}")
    broker.leave(hand.name, [started(hand.one())])


class DeathTests(BrokerFixtures):
    def test_a_death_is_counted_for_what_was_being_run(self, broker: Broker) -> None:
        """And not for what its process had claimed and not begun: that was there by chance."""
        put(broker, "ran", "waited")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        ran, _ = hand.claim()
        assert broker.leave(hand.name, [started(ran)]) == 2
        assert {claim.key: claim.deaths for claim in other.claim()} == {"ran": 1, "waited": 0}

    def test_a_death_is_no_failure(self, broker: Broker) -> None:
        """The count of failures and the last error stay, and the job is due at once."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.settle(failed(hand.one(), "earlier", 25, 0.0))
        broker.leave(hand.name, [started(hand.one())])
        claim = other.one()
        assert (claim.deaths, claim.retry_count, claim.error) == (1, 0, "earlier")

    @needs("inspect", "queued_jobs")
    def test_a_death_changes_nothing_else(self, broker: Broker, clock: ManualClock) -> None:
        """It is no failure: the job is as any that was given back by a worker that is gone."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "earlier", 25, 5.0))
        clock.advance(5)
        claim = hand.one()
        clock.advance(60)
        broker.leave(hand.name, [started(claim)])
        view = only(broker, "a")
        assert (view.retry_count, view.error, view.perform_at) == (0, "earlier", claim.perform_at)
        assert (view.attempt, view.worker, view.deaths) == (2, None, 1)

    def test_leaving_without_a_death_counts_none(self, broker: Broker) -> None:
        """A worker that was told to go may have begun its jobs; it is nobody's fault."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        assert broker.leave(hand.name) == 1
        assert other.one().deaths == 0

    def test_a_repeated_leave_counts_once(self, broker: Broker) -> None:
        """Its answer may have been lost; and the same run named twice is one run."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        ran = started(hand.one())
        assert [broker.leave(hand.name, [ran, ran]), broker.leave(hand.name, [ran])] == [1, 0]
        assert other.one().deaths == 1

    @needs("leases")
    def test_what_is_not_held_is_not_blamed(self, broker: Broker) -> None:
        """Neither under another token, nor what is settled, another worker's, of another queue or unknown."""
        put(broker, "settled", "held", "theirs")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        (settled,), (held,), (theirs,) = hand.claim(limit=1), hand.claim(limit=1), other.claim()
        hand.settle(failed(settled, "no", 25, 0.0))
        stale = started(held, token=held.token - 1)
        strangers = [StartedRun("nowhere", "held", held.token), StartedRun("q", "nobody", held.token)]
        assert broker.leave(hand.name, [started(settled), stale, started(theirs), *strangers]) == 1
        other.settle(released(theirs))
        assert {claim.key: claim.deaths for claim in other.claim()} == {"settled": 0, "held": 0, "theirs": 0}

    @needs("leases")
    def test_a_worker_that_was_declared_dead_leaves_nothing_behind(self, broker: Broker) -> None:
        """The worker that declared it dead gives its claims back. What ended its process is not known by then."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        declare_dead(broker, hand)
        assert broker.leave(hand.name, [started(claim)]) == 0
        assert (broker.status("q", "a"), other.claim()) == ("running", [])
        assert broker.reclaim() == 1
        assert other.one().deaths == 0

    @needs("keyed")
    def test_a_death_is_counted_at_the_call_that_was_being_run(self, broker: Broker) -> None:
        """Whether or not it is the first: those before it had ended, though nobody was told."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert deaths(claim) == {"a": 0, "b": 0, "c": 0}
        broker.leave(hand.name, [started(claim, 1)])
        again = ScriptedWorker(broker, "worker-2").one()
        assert (deaths(again), again.retry_count, again.deaths) == ({"a": 0, "b": 1, "c": 0}, -1, 0)

    @needs("inspect", "keyed", "queued_jobs")
    def test_calls_are_shown_with_their_deaths_and_attempts(self, broker: Broker) -> None:
        """Each with its own."""
        calls(broker, "k", "a", "b", "c")
        hand = ScriptedWorker(broker)
        broker.leave(hand.name, [started(hand.one(), 1)])
        view = only(broker, "k")
        assert deaths(view) == {"a": 0, "b": 1, "c": 0}
        assert attempts(view) == {"a": 1, "b": 1, "c": 1}

    @needs("inspect", "keyed", "queued_jobs")
    def test_a_keyed_job_is_shown_with_the_deaths_of_its_first_call(self, broker: Broker) -> None:
        """Queued, running, set aside or dead."""
        calls(broker, "k", "a", "b")
        crash(broker, 1)
        assert only(broker, "k").deaths == 1
        hand = ScriptedWorker(broker)
        claim = hand.one(max_payloads=1)
        assert {view.status: view.deaths for view in broker.inspect.find("q", "k")} == {"running": 1, "queued": 0}
        hand.settle(buried(claim, "no"))
        assert {view.status: view.deaths for view in broker.inspect.find("q", "k")} == {"queued": 0, "dead": 1}
        assert [view.deaths for view in broker.inspect.listing("q", "dead").jobs] == [1]

    @needs("keyed")
    def test_the_calls_that_succeed_take_their_deaths_with_them(self, broker: Broker) -> None:
        """Those of others stay."""
        calls(broker, "k", "a", "b")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        broker.leave(hand.name, [started(claim, 0), started(claim, 1)])
        hand = ScriptedWorker(broker, "worker-2")
        hand.settle(released(hand.one(), done=1))
        calls(broker, "k", "c")
        left: dict[str, int] = {}
        while claims := hand.claim():
            left |= {body: count for claim in claims for body, count in deaths(claim).items()}
            hand.settle(*map(done, claims))
        assert left == {"b": 1, "c": 0}

    @needs("inspect", "collecting")
    def test_a_collecting_job_counts_as_a_whole(self, broker: Broker) -> None:
        """More payloads, equal or not, leave its count as it is; its success resets it."""
        values(broker, "k", {"a": 1.0, "b": 2.0})
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        claim = hand.one()
        broker.enqueue([value("k", "a", score=0.5)])
        broker.leave(hand.name, [StartedRun("q", "k", claim.token)])
        values(broker, "k", {"b": 1.5, "c": 3.0})
        again = other.one()
        assert (again.deaths, deaths(again)) == (1, {"a": 0, "b": 0, "c": 0})
        values(broker, "k", {"d": None})
        other.settle(done(again))
        assert (only(broker, "k").deaths, other.one().deaths) == (0, 0)

    @needs("inspect", "keyed", "collecting")
    def test_a_failure_keeps_the_deaths(self, broker: Broker) -> None:
        """An exception says nothing about what ended its process before."""
        crashed = one_of_each(broker)
        broker.leave("worker-1", [started(claim) for claim in crashed])
        hand = ScriptedWorker(broker, "worker-2")
        hand.settle(*(failed(claim, "no", 25, 0.0) for claim in hand.claim()))
        for claim in crashed:
            view = only(broker, claim.key)
            assert (view.deaths, view.retry_count) == (1, 0), claim.key

    @needs("inspect", "keyed", "collecting")
    def test_a_run_that_died_in_a_process_of_its_own_is_settled_with_a_death(self, broker: Broker) -> None:
        """It is due again at once, and no failure. A keyed job counts at its first call that is not done."""
        hand = ScriptedWorker(broker, "worker-2")
        one_of_each(broker)
        broker.leave("worker-1")
        calls(broker, "keyed", "behind")
        for claim in hand.claim():
            assert hand.settle(died(claim, "ended")) == []
            view = only(broker, claim.key)
            assert (view.deaths, view.retry_count, view.error, view.attempt) == (1, -1, None, 2), claim.key
        assert deaths(only(broker, "keyed")) == {"call": 1, "behind": 0}
        again = next(claim for claim in hand.claim() if claim.key == "keyed")
        hand.settle(died(again, "ended", done=1))
        assert deaths(only(broker, "keyed")) == {"behind": 1}

    @needs("inspect", "keyed", "collecting")
    def test_a_job_buried_for_its_deaths_is_shown_with_all_of_them(self, broker: Broker) -> None:
        """And only what ended its processes is buried."""
        one_of_each(broker)
        broker.leave("worker-1")
        calls(broker, "keyed", "behind")
        hand = ScriptedWorker(broker, "worker-2")
        for _ in range(BURIED_AT):
            hand.settle(*(died(claim, "ended") for claim in hand.claim()))
        dead = broker.inspect.listing("q", "dead").jobs
        assert {view.key: view.deaths for view in dead} == dict.fromkeys(("plain", "keyed", "collecting"), BURIED_AT)
        assert [bodies(view) for view in dead if view.key == "keyed"] == [["call"]]
        assert deaths(hand.one()) == {"behind": 0}

    @needs("inspect", "operate", "keyed", "collecting")
    def test_who_is_revived_begins_without_deaths(self, broker: Broker) -> None:
        """The cause is taken to be mended. Being run now by hand is no revival."""
        crashed = one_of_each(broker)
        broker.leave("worker-1", [started(claim) for claim in crashed])
        keys = [claim.key for claim in crashed]
        for key in keys:
            broker.reschedule("q", key, delay_s=60)
        assert broker.operate.run_now("q", keys) == 3
        hand = ScriptedWorker(broker, "worker-2")
        claims = hand.claim()
        assert [only(broker, key).deaths for key in keys] == [1, 1, 1]
        hand.settle(*(buried(claim, "no") for claim in claims))
        assert [only(broker, key).deaths for key in keys] == [1, 1, 1]
        assert broker.operate.revive("q", keys) == 3
        assert [only(broker, key).deaths for key in keys] == [0, 0, 0]
        revived = {claim.key: claim for claim in hand.claim()}
        assert ([claim.deaths for claim in revived.values()], deaths(revived["keyed"])) == ([0, 0, 0], {"call": 0})

    @needs("inspect", "collecting")
    def test_two_jobs_of_a_key_that_meet_in_the_morgue_have_the_larger_count(self, broker: Broker) -> None:
        """Of the two that they come with."""
        for number, crashes in enumerate((2, 1)):
            values(broker, "k", {f"v{number}": None})
            for again in range(crashes):
                crash(broker, 10 * number + again)
            hand = ScriptedWorker(broker, f"worker-{number}")
            hand.settle(buried(hand.one(), "no"))
        view = only(broker, "k")
        assert (view.status, bodies(view), view.deaths) == ("dead", ["v0", "v1"], 2)


def one_of_each(broker: Broker) -> list[Claim]:
    """A plain, a keyed and a collecting job, claimed by worker-1."""
    broker.enqueue([job("plain"), call("keyed", "call"), value("collecting", "value")])
    return ScriptedWorker(broker).claim()
