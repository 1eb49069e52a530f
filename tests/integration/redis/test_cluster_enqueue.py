"""Tests of storing jobs on a Cluster when a queue is unreachable or a key is taken."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, EnqueueError
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, call, calls, job, numbers, places, put
from tests.integration.redis.test_cluster_lost_replies import Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration


class Deaf(Cut):
    """A Cluster on which the server of one queue is away."""

    queue: str | None = None

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        heard = [command for command in commands if not self._is_deaf_to(command)]
        answers = iter(self.inner.exchange(heard) if heard else ())
        return [RedisConnectionError("away") if self._is_deaf_to(command) else next(answers) for command in commands]

    def _is_deaf_to(self, command: Command) -> bool:
        root = f"{{laneway:{self.queue}:0}}"
        return self.queue is not None and any(isinstance(part, str) and part.startswith(root) for part in command)


@pytest.fixture
def deaf(redis_cluster: RedisCluster, open_url: Opener) -> Deaf:
    return Deaf(open_url(redis_cluster.url))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(deaf: Deaf, clock: ManualClock) -> RedisBroker:
    broker = RedisBroker(deaf, clock=clock)
    broker.declare("q", 5)
    broker.declare("far", 2)
    return broker


def test_what_was_not_stored_is_named(broker: RedisBroker, deaf: Deaf) -> None:
    """Queues are stored one after the other, each in the order of its jobs."""
    jobs = [job(f"k{n}", queue=("q", "far", "other")[n % 3]) for n in range(6)]
    broker.declare("other", 1)
    deaf.queue = "far"
    with pytest.raises(BrokerAwayError) as caught:
        broker.enqueue(jobs)
    assert str(caught.value).startswith(
        "2 of the 6 jobs were stored, those up to the key 'k3' of the queue q; the next ones may or may not have been: "
    )
    assert caught.value.unstored == [1, 2, 4, 5]
    deaf.queue = None
    assert [n for n, each in enumerate(jobs) if broker.status(each.queue, each.key) == "gone"] == [1, 2, 4, 5]
    broker.enqueue(jobs)
    assert [numbers(broker, queue).length for queue in ("q", "far", "other")] == [2, 2, 2]


def test_a_list_for_several_queues_is_refused_before_any_of_it_is_stored(broker: RedisBroker) -> None:
    put(broker, "taken", queue="far")
    with pytest.raises(EnqueueError, match="'taken'"):
        broker.enqueue([*(job(f"k{n}") for n in range(1_500)), call("taken", "a", queue="far")])
    assert (numbers(broker).length, numbers(broker, "far").length) == (0, 1)


def test_many_jobs_of_one_queue_keep_their_order(broker: RedisBroker) -> None:
    broker.enqueue([call("k", f"{n}") for n in range(2_500)])
    assert places(broker, "k") == {"queued": [f"{n}" for n in range(1_000)]}
    assert numbers(broker).length == 1


def send(broker: RedisBroker, deaf: Deaf, sent: list[NewJob]) -> None:
    """A run ends and sends jobs to a queue that is away just then."""
    put(broker, "run")
    hand = ScriptedWorker(broker)
    claim = hand.one()
    deaf.queue = "far"
    assert hand.settle(done(claim, sent)) == []
    deaf.queue = None


def test_what_a_run_sends_waits_for_a_queue_that_is_away(broker: RedisBroker, deaf: Deaf, clock: ManualClock) -> None:
    """Until then it is queued, and counts."""
    send(broker, deaf, [job("child", queue="far", delay_s=60), job("near")])
    at = clock.now() + 60
    assert (broker.status("q", "near"), broker.status("far", "child")) == ("queued", "queued")
    assert (numbers(broker, "far").length, numbers(broker, "far").fresh) == (1, 1)
    broker.reclaim()
    assert broker.inspect.find("far", "child") == []  # its sender may be about to deliver it
    clock.advance(10)
    broker.reclaim()
    assert [(view.status, view.perform_at) for view in broker.inspect.find("far", "child")] == [("delayed", at)]
    assert (broker.status("far", "child"), numbers(broker, "far").length) == ("delayed", 1)


def test_what_is_on_its_way_to_a_new_queue_counts(broker: RedisBroker) -> None:
    put(broker, "run")
    hand = ScriptedWorker(broker)
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: set())
        hand.settle(done(hand.one(), [job("child", queue="new")]))
    assert numbers(broker, "new").length == 1
    assert broker.status("new", "child") == "queued"


def test_one_payload_of_what_is_on_its_way_is_queued(broker: RedisBroker, deaf: Deaf) -> None:
    send(broker, deaf, [call("k", "one", queue="far"), call("k", "two", queue="far")])
    assert [broker.status("far", "k", identity) for identity in ("one", "two", "three")] == ["queued", "queued", "gone"]


def test_several_runs_of_a_turn_send_one_entry_to_a_queue(broker: RedisBroker, deaf: Deaf) -> None:
    put(broker, *(f"run-{n}" for n in range(5)))
    hand = ScriptedWorker(broker)
    claims = hand.claim()
    deaf.queue = "far"
    assert hand.settle(*(done(claim, [call("k", claim.key, queue="far")]) for claim in claims)) == []
    deaf.queue = None
    assert deaf.do("HLEN", "{laneway:q:0}:outbox") == 1
    assert hand.again().refused == []
    assert places(broker, "k", "far") == {"queued": [claim.key for claim in claims]}
    assert deaf.do("HLEN", "{laneway:q:0}:outbox") == 0


def left_in_outbox(broker: RedisBroker) -> int:
    count: int = broker._server.do("HLEN", "{laneway:q:0}:outbox")
    return count


def end_run(broker: RedisBroker, hand: ScriptedWorker, body: str) -> None:
    """A run of the key `run` ends, and sends a call of the key `k` to another queue."""
    calls(broker, "run", body)
    assert hand.settle(done(hand.one(), [call("k", body, queue="far")])) == []


def die_before_delivery(broker: RedisBroker, hand: ScriptedWorker, *sent: str) -> None:
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: set())
        for body in sent:
            end_run(broker, hand, body)


def test_what_a_run_sends_does_not_overtake_what_an_earlier_one_has_sent(broker: RedisBroker) -> None:
    """Whose worker has died before it delivered it."""
    hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
    die_before_delivery(broker, hand, "1", "2")
    end_run(broker, other, "3")
    assert places(broker, "k", "far") == {"queued": ["1", "2", "3"]}


def test_a_sweep_does_not_overtake_a_sender(broker: RedisBroker, clock: ManualClock) -> None:
    """The clock of the server has stepped back: the earlier call seems to be a young one."""
    hand = ScriptedWorker(broker)
    die_before_delivery(broker, hand, "1")
    clock.step(-60)
    die_before_delivery(broker, hand, "2")
    clock.step(58)
    broker.reclaim()
    assert places(broker, "k", "far") == {}
    clock.advance(20)
    broker.reclaim()
    assert places(broker, "k", "far") == {"queued": ["1", "2"]}


def test_many_entries_that_were_left_behind_are_delivered_in_order(broker: RedisBroker, clock: ManualClock) -> None:
    hand = ScriptedWorker(broker)
    names = [f"{n}" for n in range(150)]
    die_before_delivery(broker, hand, *names[:-1])
    end_run(broker, hand, names[-1])
    assert places(broker, "k", "far") == {"queued": names[:100]}, "a turn does not do all of it"
    assert left_in_outbox(broker) == 50
    clock.advance(10)
    broker.reclaim()
    assert places(broker, "k", "far") == {"queued": names}
    assert left_in_outbox(broker) == 0


def test_any_number_of_runs_of_a_turn_may_send_something(broker: RedisBroker) -> None:
    """More than Lua can hand over one by one."""
    names = [f"run-{n}" for n in range(9_000)]
    put(broker, *names)
    hand = ScriptedWorker(broker)
    claims = hand.claim(limit=len(names))
    assert hand.settle(*(done(claim, [job(claim.key, queue="far")]) for claim in claims)) == []
    assert numbers(broker, "far").length == len(names)


def test_what_a_refused_run_sends_is_not_sent(broker: RedisBroker) -> None:
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
    one, other = hand.claim()
    broker.renew(hand.name, [], 2**53)
    taken = hand.claim()
    refused = hand.settle(
        done(one, [job("child of one", queue="far")]),
        *(done(claim, [job(f"child of {claim.key}", queue="far")]) for claim in taken),
        done(other, [job("child of other", queue="far")]),
    )
    assert refused == ["a", "b"]
    keys = [view.key for view in broker.inspect.listing("far", "queued").jobs]
    assert keys == ["child of a", "child of b"]


def test_what_cannot_be_stored_any_more_holds_nothing_up(
    broker: RedisBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "a")
    hand = ScriptedWorker(broker)
    claim = hand.one()
    sent = [job("free", queue="far"), call("taken", "x", queue="far"), call("other", "y", queue="far")]
    with monkeypatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: None)  # it dies before that
        hand.settle(done(claim, sent))
    put(broker, "taken", body="plain", queue="far")
    clock.advance(10)
    with caplog.at_level(logging.ERROR, "laneway"):
        broker.reclaim()
    assert "The key 'taken' of the queue far belongs to a plain job" in caplog.text
    assert places(broker, "taken", "far") == {"queued": ["plain"]}
    assert places(broker, "other", "far") == {"queued": ["y"]}
    assert broker.status("far", "free") == "queued"
    caplog.clear()
    broker.reclaim()
    assert caplog.text == ""


@pytest.mark.parametrize("queue", ["q", "far"])
def test_a_conflict_is_found_before_anything_is_settled(broker: RedisBroker, queue: str) -> None:
    put(broker, "a", "b")
    put(broker, "taken", queue=queue)
    calls(broker, "k", "x")
    hand = ScriptedWorker(broker)
    claims = {claim.key: claim for claim in hand.claim()}
    busy = len(claims)
    bad = [job("child", queue="far"), call("taken", "not a plain one", queue=queue)]
    with pytest.raises(EnqueueError, match="'taken'"):
        hand.settle(done(claims["a"], bad), done(claims["k"]))
    assert (numbers(broker).busy, numbers(broker).processed) == (busy, 0)
    assert broker.status("far", "child") == "gone"


def test_the_key_of_a_job_that_ends_is_free(broker: RedisBroker) -> None:
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
    one, other = hand.claim()
    assert hand.settle(done(one, [call("b", "not a plain one")]), done(other)) == []
    assert places(broker, "b") == {"queued": ["not a plain one"]}


def test_a_lease_is_renewed_while_the_server_of_a_queue_is_away(broker: RedisBroker, deaf: Deaf) -> None:
    worker = ScriptedWorker(broker)
    (view,) = broker.inspect.workers()
    before = broker.leases()[view.id]
    deaf.queue = "far"
    broker.renew(view.id, [], 1)
    assert broker.leases()[view.id] != before
    deaf.queue = None
    put(broker, "a", queue="q")
    assert worker.claim()
