"""Tests of status, find, stats, lags, workers, check and repair."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import BrokerError
from ...jobs.data import JobView, Payload, QueueStats
from ...jobs.settlement import buried, done, failed
from ...jobs.shards import shard_of
from .fixtures import (
    CANCELLABLE,
    BrokerFixtures,
    ScriptedWorker,
    bodies,
    call,
    calls,
    check_numbers,
    job,
    needs,
    numbers,
    only,
    put,
    value,
)


class InspectTests(BrokerFixtures):
    @needs("operate")
    def test_the_status_follows_the_job(self, broker: Broker, clock: ManualClock) -> None:
        """delayed → queued → running → dead → queued → running → gone."""
        seen = []

        def look() -> None:
            seen.append(broker.status("q", "a"))

        put(broker, "a", delay_s=10, hints=CANCELLABLE)
        look()
        clock.advance(10)
        look()
        hand = ScriptedWorker(broker)
        claim = hand.one()
        look()
        hand.settle(buried(claim, "no"))
        look()
        broker.operate.revive("q", ["a"])
        look()
        claim = hand.one()
        look()
        hand.settle(done(claim))
        look()
        assert seen[:-1] == ["delayed", "queued", "running", "dead", "queued", "running"]
        assert seen[-1] in ("done", "gone")

    @needs("keyed", "queued_jobs")
    def test_what_was_never_enqueued_is_gone(self, broker: Broker) -> None:
        """A key, and an identity of one that is there."""
        calls(broker, "k", "a")
        assert (broker.status("q", "a"), broker.status("q", "k", "b")) == ("gone", "gone")

    @needs("inspect", "priorities")
    def test_a_job_shows_all_that_is_known_of_it(self, broker: Broker, clock: ManualClock) -> None:
        """While it is queued, and while somebody runs it."""
        put(broker, "order-1", body="b", score=2.5, delay_s=3.5, priority=2)
        view = JobView(
            queue="q",
            key="order-1",
            status="delayed",
            shard=4,
            payloads=[Payload("b", 2.5)],
            perform_at=clock.now() + 3.5,
            retry_count=-1,
            attempt=0,
            priority=2,
        )
        assert broker.inspect.find("q", "order-1") == [view]
        clock.advance(4)
        ScriptedWorker(broker).one()
        running = only(broker, "order-1")
        assert (running.status, running.worker, running.attempt) == ("running", "worker-1", 1)

    @needs("inspect", "queued_jobs")
    def test_a_key_is_found_in_the_queue_and_in_the_morgue(self, broker: Broker) -> None:
        """The queued job first; nothing at all for a key that is nowhere."""
        hand = ScriptedWorker(broker)
        put(broker, "a")
        hand.settle(buried(hand.one(), "no"))
        put(broker, "a", delay_s=9)
        assert [view.status for view in broker.inspect.find("q", "a")] == ["delayed", "dead"]
        assert broker.status("q", "a") == "delayed"
        assert broker.inspect.find("q", "b") == []

    @needs("inspect")
    def test_the_statistics_of_an_empty_queue_are_zeros(self, broker: Broker) -> None:
        """A queue is listed from its declaration on; queues come by name."""
        shards = {queue: broker.declare(queue, 5) for queue in ("a", "q")}
        assert broker.inspect.stats() == [QueueStats(queue=queue, shards=shards[queue]) for queue in ("a", "q")]

    @needs("inspect", "exact_counts")
    def test_the_statistics_count_every_place(self, broker: Broker, clock: ManualClock) -> None:
        """length = fresh + retries: what is queued, delayed included, being run not."""
        put(broker, "done", "dead", "retry", "busy-1", "busy-2")
        hand = ScriptedWorker(broker)
        first, second, third, *_ = hand.claim()
        hand.settle(done(first), buried(second, "no"), failed(third, "no", 25, 5.0))
        put(broker, "due-1", "due-2", delay_s=-20.0)
        put(broker, "later", delay_s=10.0)
        assert numbers(broker) == QueueStats(
            queue="q",
            shards=5,
            length=4,
            delayed=2,
            fresh=3,
            retries=1,
            dead=1,
            busy=2,
            processed=1,
            failed=2,
            lag=20.0,
        )
        clock.advance(7)
        check_numbers(broker, delayed=1, lag=27.0)

    @needs("inspect", "exact_counts")
    def test_lag_is_that_of_the_most_overdue_job(self, broker: Broker, clock: ManualClock) -> None:
        """Of queued ones: what runs is not late, and what is to come is not yet."""
        put(broker, "later", delay_s=100.0)
        assert numbers(broker).lag == 0.0
        put(broker, "older", delay_s=-50.0)
        put(broker, "newer", delay_s=-20.0)
        assert numbers(broker).lag == 50.0
        ScriptedWorker(broker).claim(limit=1)
        assert numbers(broker).lag == 20.0
        put(broker, "ancient", perform_at=-10.0)
        assert numbers(broker).lag == pytest.approx(clock.now() + 10)

    @needs("inspect", "priorities")
    def test_every_shard_has_a_lag_of_its_own(self, broker: Broker, clock: ManualClock) -> None:
        """That of its most overdue job, whatever its priority; shards without a due job have none."""
        assert broker.inspect.lags("q") == {}
        in_shard = {shard: [f"k{n}" for n in range(99) if shard_of(f"k{n}", 5) == shard] for shard in range(5)}
        put(broker, in_shard[4][0], delay_s=-50.0)
        put(broker, in_shard[4][1], delay_s=-20.0, priority=3)
        put(broker, in_shard[1][0], delay_s=-10.0)
        put(broker, in_shard[1][1], delay_s=-30.0, priority=-2)
        put(broker, in_shard[0][0])
        put(broker, in_shard[2][0], delay_s=5.0)
        broker.declare("other", 5)
        assert broker.inspect.lags("q") == {0: 0.0, 1: 30.0, 4: 50.0}
        assert broker.inspect.lags("other") == {}
        clock.advance(7)
        assert broker.inspect.lags("q") == {0: 7.0, 1: 37.0, 2: 2.0, 4: 57.0}
        ScriptedWorker(broker).claim(shards=[4], limit=2)
        assert broker.inspect.lags("q") == {0: 7.0, 1: 37.0, 2: 2.0}, "what runs is not late"

    @needs("inspect")
    def test_workers_show_how_much_they_hold(self, broker: Broker, clock: ManualClock) -> None:
        """And when they were last seen."""
        put(broker, "a", "b", "c")
        hand = ScriptedWorker(broker)
        hand.claim(limit=2)
        clock.advance(4)
        broker.renew(hand.name, [], 0)
        (view,) = broker.inspect.workers()
        assert (view.busy, view.seen_at, view.started_at) == (2, clock.now(), clock.now() - 4)

    @needs("inspect", "operate", "shards")
    def test_asking_an_unknown_queue_is_an_error_that_names_it(self, broker: Broker) -> None:
        """Every verb that looks into a queue or acts on one; nothing is made by asking."""
        asking: list[Callable[[], object]] = [
            lambda: broker.status("nowhere", "a"),
            lambda: broker.inspect.find("nowhere", "a"),
            lambda: broker.inspect.lags("nowhere"),
            lambda: broker.inspect.listing("nowhere", "queued"),
            lambda: broker.cancel("nowhere", "a"),
            lambda: broker.reschedule("nowhere", "a"),
            lambda: broker.operate.revive("nowhere", ["a"]),
            lambda: broker.operate.delete_dead("nowhere", ["a"]),
            lambda: broker.operate.run_now("nowhere", ["a"]),
            lambda: broker.operate.bury_failed("nowhere", ["a"]),
            lambda: broker.operate.delete_failed("nowhere", ["a"]),
            lambda: broker.shards.reshard("nowhere", 3),
        ]
        for ask in asking:
            with pytest.raises(BrokerError, match="nowhere"):
                ask()
        assert "nowhere" not in broker.inspect.queues()

    @needs("health")
    def test_a_well_broker_has_nothing_to_say(self, broker: Broker) -> None:
        """`check` returns sentences about what is unwell, and there is nothing."""
        assert broker.health.check() == []
        put(broker, "a")
        ScriptedWorker(broker).one()
        assert broker.health.check() == []

    @needs("health", "leases")
    def test_claims_of_the_dead_are_unwell(self, broker: Broker) -> None:
        """As long as nobody has taken them back."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.one()
        broker.declare_dead(hand.name, broker.leases()[hand.name][0])
        assert len(broker.health.check()) == 1
        broker.reclaim()
        assert broker.health.check() == []

    @needs("inspect", "health", "keyed", "leases")
    def test_repairing_takes_back_the_claims_of_the_dead(self, broker: Broker) -> None:
        """It says what it did, and has nothing to do after that; what is well is left alone."""
        calls(broker, "k", "a", "b")
        put(broker, "held")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.claim(limit=1)
        held = other.one()
        broker.declare_dead(hand.name, broker.leases()[hand.name][0])
        calls(broker, "k", "c")
        assert len(broker.health.repair()) == 1
        assert (broker.health.check(), broker.health.repair()) == ([], [])
        assert bodies(only(broker, "k")) == ["a", "b", "c"]
        assert other.settle(done(held)) == []

    @needs("inspect", "keyed", "collecting")
    def test_what_is_shown_is_a_copy(self, broker: Broker) -> None:
        """Changing it changes nothing in the broker."""
        broker.enqueue([call("k", "a", headers={"h": "1"}), value("c", "v")])
        ScriptedWorker(broker).claim(limit=1)
        calls(broker, "k", "b")
        for key in ("k", "c"):
            before = broker.inspect.find("q", key)
            for view in broker.inspect.find("q", key):
                for payload in view.payloads:
                    (payload.headers or {})["h"] = "2"
                view.payloads.clear()
            assert broker.inspect.find("q", key) == before
        (worker,) = broker.inspect.workers()
        worker.queues.append("more")
        worker.shards["q"] = [7]
        assert (broker.inspect.workers()[0].queues, broker.inspect.workers()[0].shards) == (["q"], {})

    def test_a_closed_broker_opens_itself_again(self, broker: Broker) -> None:
        """`close` lets go of files and connections, not of jobs; it may be repeated."""
        broker.enqueue([job("a")])
        broker.close()
        broker.close()
        assert broker.status("q", "a") == "queued"
