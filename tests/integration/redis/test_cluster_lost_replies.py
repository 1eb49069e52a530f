"""Tests that a repeat repairs a broker verb on a Cluster whose connection was cut.

A verb may be several calls there. The connection is cut before, in the middle of and after each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from laneway.broker import Turn
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.client.server import Key, RedisClient, Server
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.events.event import copy_key
from laneway.jobs.data import EventCopy, NewJob
from laneway.jobs.settlement import buried, done, failed, released
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, numbers, places, put, value
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration

#: How much of what is sent at once gets through before the connection is cut.
CUTS: dict[str, Callable[[int], int]] = {
    "before": lambda _: 0,
    "amid": lambda sent: sent // 2,
    "after": lambda sent: sent,
}

JOBS = [
    *(call(f"keyed-{n}", f"call-{n}-{m}") for n in range(3) for m in range(2)),
    *(value(f"values-{n}", f"value-{n}-{m}") for n in range(2) for m in range(2)),
    *(job(f"plain-{n}", f"plain-{n}") for n in range(12)),
]


class Cut(RedisClient):
    """A Cluster to which the connection is cut once."""

    is_cluster = True

    def __init__(self, inner: RedisClient) -> None:
        self.inner = inner
        self.place = inner.place
        #: At which exchange from now on, and how; None: never.
        self.at: int | None = None
        self.how = CUTS["after"]
        #: What did not get through then.
        self.late: Sequence[Command] = ()

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        if self.at is not None:
            self.at -= 1
        if self.at is None or self.at >= 0 or not commands:
            return self.inner.exchange(commands)
        self.at = None
        through = self.how(len(commands))
        self.late = commands[through:]
        self.inner.exchange(commands[:through])
        raise BrokerAwayError("The connection was cut, as it was told to be.")

    def servers(self) -> list[Server]:
        return self.inner.servers()

    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> set[bytes]:
        return self.inner.wait(keys, timeout_s, unless)

    def nudge(self) -> None:
        self.inner.nudge()

    def close(self) -> None:
        self.inner.close()


class Scene:
    """A broker on an empty cluster, and a connection to it that can be cut."""

    def __init__(self, cluster: RedisCluster, server: RedisClient) -> None:
        cluster.flush()
        self.clock = ManualClock()
        self.cut = Cut(server)
        self.broker = RedisBroker(self.cut, clock=self.clock)
        self.broker.declare("q", 5)
        self.broker.declare("far", 2)
        self.hand, self.other = ScriptedWorker(self.broker), ScriptedWorker(self.broker, "worker-2")
        #: What was run, by body.
        self.ran: Counter[str] = Counter()

    def repeat(self, step: Callable[[], Any], at: int, how: str) -> tuple[Any, bool]:
        """What a step returns, repeated after the connection was cut in it; and whether it was."""
        self.cut.at, self.cut.how = at, CUTS[how]
        while True:
            try:
                answer = step()
            except BrokerAwayError:
                continue
            was_cut, self.cut.at = self.cut.at is None, None
            return answer, was_cut

    def run(self, *claims: Any) -> None:
        self.ran.update(payload.body for claim in claims for payload in claim.payloads)

    def drain(self) -> None:
        """Run all that there is, by another worker; what the first one does not know of goes back as it renews."""
        self.broker.renew(self.hand.name, [], 2**53)
        self.clock.advance(10)  # what lies in an outbox for so long was left behind
        self.broker.reclaim()
        self.clock.advance(1_000)
        self.work("q", "far")

    def work(self, *queues: str) -> None:
        for queue in queues:
            while claims := self.other.claim(queue=queue):
                self.run(*claims)
                assert self.other.settle(*(done(claim) for claim in claims), queue=queue) == []


@pytest.mark.parametrize("how", CUTS)
def test_enqueueing_is_cut(redis_cluster: RedisCluster, open_url: Opener, how: str) -> None:
    server = open_url(redis_cluster.url)
    at, was_cut = 0, True
    while was_cut:
        scene = Scene(redis_cluster, server)
        _, was_cut = scene.repeat(lambda: scene.broker.enqueue(JOBS), at, how)  # noqa: B023  # it is called at once
        views = [view for new in {new.key: new for new in JOBS} for view in scene.broker.inspect.find("q", new)]
        assert {view.status for view in views} == {"queued"}
        assert [payload.body for view in views for payload in view.payloads] == [new.body for new in JOBS]
        scene.drain()
        assert scene.ran == Counter(new.body for new in JOBS)
        at += 1
    assert at > 1


def outbox() -> list[NewJob]:
    """What a run sends: to its own queue and another, to a key that waits, and to one that runs; and an event."""
    sent = [job(f"child-{n}", f"child-{n}") for n in range(4)]
    sent += [call("keyed-0", "child of 0"), call("keyed-2", "child of 2"), value("values-0", "child of values")]
    sent += [
        job(copy_key("event", queue), f"copy for {queue}", queue=queue, event=EventCopy("event"))
        for queue in ("q", "far")
    ]
    return [*sent, job("far away", "far away", queue="far")]


def settle_and_claim(scene: Scene, at: int, how: str, sends: bool) -> bool:
    """Take a turn with every verdict, and perhaps an outbox, cut somewhere; says whether it was."""
    scene.broker.enqueue(JOBS)
    claims = {claim.key: claim for claim in scene.hand.claim(limit=12)}
    assert len(claims) == 12
    settlements = [
        done(claims.pop("plain-0"), outbox()[:5] if sends else None),
        failed(claims.pop("plain-1"), "no", 5, 60.0, outbox=outbox()[5:] if sends else None),
        buried(claims.pop("plain-2"), "no"),
        released(claims.pop("plain-3")),
        done(claims.pop("keyed-0")),
    ]
    scene.run(settlements[0].claim, settlements[-1].claim)
    turn = Turn(scene.hand.name, "q", scene.hand.seq + 1, settlements, 3)
    answer, was_cut = scene.repeat(lambda: scene.broker.turn(turn), at, how)
    assert answer.refused == []
    assert len(answer.claims) == 3
    assert {claim.token for claim in answer.claims} == {answer.token}
    assert scene.broker.turn(turn) == answer
    scene.cut.inner.exchange(scene.cut.late)  # what was thought to be lost arrives after all
    assert scene.broker.turn(turn) == answer
    assert numbers(scene.broker).busy == len(claims) + len(answer.claims)
    assert (numbers(scene.broker).processed, numbers(scene.broker).failed) == (2, 2)
    scene.hand.seq += 1
    # All of it is known to be held, and can be settled.
    ended = [done(claim) for claim in [*answer.claims, *claims.values()]]
    scene.run(*(settlement.claim for settlement in ended))
    assert scene.hand.settle(*ended) == []
    return was_cut


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("how", CUTS)
def test_a_turn_is_cut(redis_cluster: RedisCluster, open_url: Opener, how: str, sends: bool) -> None:
    server = open_url(redis_cluster.url)
    expected = Counter(new.body for new in [*JOBS, *(outbox() if sends else [])])
    del expected["plain-2"]  # it is in the morgue
    at, was_cut = 0, True
    while was_cut:
        scene = Scene(redis_cluster, server)
        was_cut = settle_and_claim(scene, at, how, sends)
        scene.drain()
        assert scene.ran == expected
        assert places(scene.broker, "plain-2") == {"dead": ["plain-2"]}
        assert keys_in_outboxes(scene) == 0
        at += 1
    assert at > (3 if sends else 0)


@pytest.mark.parametrize("how", CUTS)
def test_delivering_what_was_left_behind_is_cut(redis_cluster: RedisCluster, open_url: Opener, how: str) -> None:
    """A worker settles and dies; the one who delivers for it is cut off, and it is delivered once all the same."""
    server = open_url(redis_cluster.url)
    at, was_cut = 0, True
    while was_cut:
        scene = Scene(redis_cluster, server)
        leave_behind(scene)
        scene.clock.advance(10)
        scene.cut.at, scene.cut.how = at, CUTS[how]
        try:
            scene.broker.reclaim()
        except BrokerAwayError:
            pass
        was_cut, scene.cut.at = scene.cut.at is None, None
        scene.work("q", "far")  # what has been delivered is gone when it is delivered again
        scene.drain()
        assert scene.ran == Counter(new.body for new in outbox())
        at += 1
    assert at > 4


def leave_behind(scene: Scene) -> None:
    """Settle a run, and be gone before what it has sent is delivered."""
    put(scene.broker, "a")
    claim = scene.hand.one()
    turn = Turn(scene.hand.name, "q", scene.hand.seq + 1, [done(claim, outbox())])
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: None)  # it dies before that
        scene.broker.turn(turn)
    assert keys_in_outboxes(scene) > 0
    assert scene.broker.inspect.listing("far", "queued").jobs == []


def keys_in_outboxes(scene: Scene) -> int:
    roots = [layout.root for layout in scene.broker._layouts.read_all()]
    return sum(scene.cut.inner.do_all([("HLEN", f"{root}:outbox") for root in roots]))
