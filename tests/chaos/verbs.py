"""World: a broker with jobs in every state, every verb of a broker to call on it, and all of its visible state.

A world has jobs of every kind: queued, delayed, failed, set aside, running, dead and cancelled. Two worlds that
went through the same steps have the same visible state, whatever their names. Values that depend on the server's
clock alone are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from laneway.broker import Broker, Listing, ReshardProgress, Turn
from laneway.clock import ManualClock
from laneway.events.event import Subscription
from laneway.jobs.data import Claim, StartedRun, WorkerView
from laneway.jobs.settlement import Settlement, buried, done, failed, postponed, released
from laneway.testing.conformance.events import copies
from laneway.testing.conformance.fixtures import ScriptedWorker, call, calls, declare_dead, job, put, value, values


class World:
    """A broker with something in every place, and two workers: one that runs, and one that holds and does nothing.

    `broker` is for the verb, and may be changed for another one; `onlooker` does all the rest.
    """

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker, self.onlooker, self.clock = broker, broker, clock
        broker.declare("q", 3)
        broker.declare("other", 2)
        self.hand, self.idle = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        calls(broker, "dead", "x")
        self.hand.settle(buried(self.hand.one(), "no"))
        calls(broker, "failed", "x", "y")
        self.hand.settle(failed(self.hand.one(), "no", 5, 60.0))
        put(broker, "cancelled")
        broker.cancel("q", "cancelled")
        put(broker, "lost")
        self.idle.claim()
        put(broker, "rp")
        calls(broker, "rk", "a", "b", "c")
        values(broker, "rc", {"v": 1.0, "w": 2.0})
        self.held = {claim.key: claim for claim in self.hand.claim(max_payloads=2)}
        put(broker, "p1", "p2")
        put(broker, "late", delay_s=1_000)
        calls(broker, "k", "a", "b", "c")
        calls(broker, "rk", "d")
        values(broker, "c", {"v": 1.0, "w": 2.0})
        broker.events.subscribe(Subscription("t", "other"))
        clock.advance(1.0)
        #: The turns that verbs take: the same one again after no answer, as a worker does.
        self.turns: dict[str, Turn] = {}

    def turn(self, *settlements: Settlement, limit: int = 0, hand: ScriptedWorker | None = None) -> Any:
        """Take a turn; again, when it is asked for again."""
        hand = hand or self.hand
        if hand.name not in self.turns:
            hand.seq += 1
            self.turns[hand.name] = Turn(hand.name, "q", hand.seq, settlements, limit)
        answer = self.broker.turn(self.turns[hand.name])
        return [_plain(claim) for claim in answer.claims], answer.refused, answer.shards, answer.resharding

    def look(self) -> dict[str, Any]:
        """Everything that can be seen."""
        broker = self.onlooker
        pages: tuple[Listing, ...] = ("queued", "retries", "running", "dead")
        return {
            "stats": broker.inspect.stats(),
            "set aside": broker.inspect.find("q", "rk"),
            "cancelled": [broker.status("q", *what) for what in (("cancelled",), ("k",), ("k", "a"))],
            "pages": {
                (queue, page): broker.inspect.listing(queue, page).jobs
                for queue in broker.inspect.queues()
                for page in pages
            },
            "workers": broker.inspect.workers(),
            "leases": {worker: lease_s for worker, (_, lease_s) in broker.leases().items()},
            "subscriptions": broker.events.subscriptions(),
            "unwell": broker.health.check(),
        }

    def drain(self) -> list[Any]:
        """Run all that is there to its end, and return it in its order."""
        broker = self.onlooker
        for worker in broker.leases():
            broker.leave(worker)
        broker.reclaim()
        self.clock.advance(2_000)
        hand, ran = ScriptedWorker(broker, "worker-9"), list[Any]()
        for stats in broker.inspect.stats():
            queue = stats.queue
            if stats.paused:
                broker.operate.resume(queue)
            for _ in range(100):  # a resharding goes on when nothing runs any more
                claims = hand.claim(1_000, queue=queue)
                if not claims and not hand.turn(0, queue=queue).resharding:
                    break
                ran += [_plain(claim) for claim in claims]
                hand.settle(*map(done, claims), queue=queue)
                if not claims:
                    broker.shards.reshard(queue, 5)
        return ran


def _plain(claim: Claim) -> Claim:
    return msgspec.structs.replace(claim, token=0, ref=0)


def _settle_all(world: World) -> Any:
    held = world.held
    settlements = [
        done(held["rp"]),
        failed(held["rk"], "no", 3, 7.0, done=1),
        postponed(held["rc"], 5.0),
    ]
    settlements[0].outbox = [job("child"), call("k", "sent"), value("c", "sent", score=0.5), job("far", queue="fresh")]
    settlements[1].outbox = [call("new", "sent")]
    return world.turn(*settlements, limit=3)


def _bury_and_release(world: World) -> Any:
    held = world.held
    return world.turn(buried(held["rk"], "no", done=1), released(held["rp"]), buried(held["rc"], "no"), limit=10)


def _reshard(world: World) -> ReshardProgress:
    """Until it is done, or waits for what runs."""
    before, step = None, world.broker.shards.reshard("q", 5, limit=4)
    while not step.done and step != before:
        before, step = step, world.broker.shards.reshard("q", 5, limit=4)
    return step


def _reshard_at_rest(world: World) -> ReshardProgress:
    for hand in (world.hand, world.idle):
        world.broker.leave(hand.name)
    return _reshard(world)


def _reclaim(world: World) -> int:
    if world.idle.name in world.broker.leases():
        declare_dead(world.broker, world.idle)
    return world.broker.reclaim()


def _leave(world: World) -> int:
    claim = world.held["rk"]
    started = StartedRun("q", "rk", claim.token, claim.payloads[0].identity)
    plain = world.held["rp"]
    return world.broker.leave(world.hand.name, [started, StartedRun("q", "rp", plain.token)])


def _renew(world: World) -> None:
    world.broker.renew(world.hand.name, [], world.held["rp"].token + 1)


def _join(world: World) -> None:
    names: dict[str, Any] = {"host": "h", "pid": 7, "queues": ["q"], "concurrency": 2}
    world.broker.join(WorkerView(id="worker-3", lease_s=9.0, started_at=0.0, seen_at=0.0, shards={"q": [1]}, **names))


def _many(world: World) -> None:
    news = [job(f"many-{n}", queue="other") for n in range(25)]
    news += [call(f"k{n % 7}", f"i{n}") for n in range(75)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laneway.brokers.redis.enqueue.CHUNK", 10)
        world.broker.enqueue(news)


def _publish(world: World) -> None:
    news = [each for n in range(9) for each in copies(f"e{n}", ["q", "other", "fresh"])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laneway.brokers.redis.enqueue.CHUNK", 10)
        world.broker.enqueue(news)


#: Verbs with what there is for them to do. Those that are told by a number which call it is answer the same again.
VERBS: dict[str, Callable[[World], Any]] = {
    "declare": lambda world: world.broker.declare("fresh", 4),
    "enqueue": lambda world: put(world.broker, "new", "p1", "rp"),
    "enqueue, a new queue": lambda world: put(world.broker, "new", queue="fresh"),
    "enqueue, keyed": lambda world: calls(world.broker, "k", "d", "e", delay_s=3.0),
    "enqueue, set aside": lambda world: calls(world.broker, "rk", "e", "f"),
    "enqueue, collecting": lambda world: values(world.broker, "c", {"x": 0.5, "v": None}),
    "enqueue, several queues": lambda world: world.broker.enqueue([job("new"), job("new", queue="other")]),
    "enqueue, a long list": _many,
    "enqueue, copies of events": _publish,
    "subscribe": lambda world: world.broker.events.subscribe(Subscription("t", "q", {"country": ["DE"]})),
    "subscribe, another filter": lambda world: world.broker.events.subscribe(
        Subscription("t", "other", {"country": ["DE"]})
    ),
    "unsubscribe": lambda world: world.broker.events.unsubscribe("t", "other"),
    "subscriptions": lambda world: world.broker.events.subscriptions("t"),
    "join": _join,
    "turn, claims": lambda world: world.turn(limit=10),
    "turn, settles with outbox and claims": _settle_all,
    "turn, buries and releases": _bury_and_release,
    "turn of a new worker": lambda world: world.turn(limit=2, hand=ScriptedWorker(world.broker, "worker-4")),
    "wait": lambda world: world.broker.wait(["q"], 30.0),
    "wait for what is not there": lambda world: world.broker.wait(["other"], 0.01),
    "renew": lambda world: world.broker.renew(world.hand.name, [], 0),
    "renew, gives back": _renew,
    "leave": _leave,
    "declare_dead": lambda world: declare_dead(world.broker, world.idle) if len(world.broker.leases()) > 1 else True,
    "reclaim": _reclaim,
    "cancel": lambda world: world.broker.cancel("q", "k"),
    "cancel, one call": lambda world: world.broker.cancel("q", "k", "a"),
    "cancel, set aside": lambda world: world.broker.cancel("q", "rk", "d"),
    "reschedule": lambda world: world.broker.reschedule("q", "k", perform_at=500.0),
    "run_now": lambda world: world.broker.operate.run_now("q", ["late", "failed", "k"]),
    "bury_failed": lambda world: world.broker.operate.bury_failed("q", ["failed", "k"]),
    "delete_failed": lambda world: world.broker.operate.delete_failed("q", ["failed", "k"]),
    "revive": lambda world: world.broker.operate.revive("q", ["dead", "k"]),
    "delete_dead": lambda world: world.broker.operate.delete_dead("q", ["dead", "k"]),
    "pause": lambda world: world.broker.operate.pause("q"),
    "resume": lambda world: (world.broker.operate.pause("q"), world.broker.operate.resume("q"))[1],
    "reshard, while something runs": _reshard,
    "reshard": _reshard_at_rest,
    "check": lambda world: world.broker.health.check(),
    "repair": lambda world: world.broker.health.repair(),
    "stats": lambda world: world.broker.inspect.stats(),
    "lags": lambda world: world.broker.inspect.lags("q"),
    "leases": lambda world: len(world.broker.leases()),
    "workers": lambda world: world.broker.inspect.workers(),
    "find": lambda world: world.broker.inspect.find("q", "rk"),
    "status": lambda world: world.broker.status("q", "rk", "d"),
    "listing": lambda world: world.broker.inspect.listing("q", "queued", order="key"),
    "queues": lambda world: world.broker.inspect.queues(),
}
