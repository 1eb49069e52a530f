"""Tests of repeats and conservation: a lost answer changes nothing, and no payload is ever lost or doubled."""

from __future__ import annotations

import random
from collections import Counter

from ...broker import Answer, Broker
from ...clock import ManualClock
from ...jobs.data import Claim
from ...jobs.settlement import Settlement, buried, done, failed, postponed, released
from .fixtures import (
    BrokerFixtures,
    ScriptedWorker,
    attempts,
    bodies,
    call,
    calls,
    declare_dead,
    needs,
    numbers,
    places,
    value,
    values,
)


@needs("keyed")
class RepeatTests(BrokerFixtures):
    @needs("operate", "collecting")
    def test_a_repeated_turn_gets_the_same_payloads(self, broker: Broker) -> None:
        """Whatever was enqueued or revived since: the same calls, scores, attempts and counts."""
        calls(broker, "dead", "d")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        calls(broker, "k", "head", "b")
        hand.settle(failed(hand.one(), "no", 5, 0.0))
        values(broker, "c", {"a": 1.0, "b": 2.0, "c": 3.0})
        calls(broker, "dead", "e")
        first = hand.turn(10, max_payloads=2)
        assert {claim.key: bodies(claim) for claim in first.claims} == {
            "k": ["head", "b"],
            "c": ["a", "b"],
            "dead": ["e"],
        }
        calls(broker, "k", "early", perform_at=-5.0)
        values(broker, "c", {"a": 0.5, "z": 0.1})
        broker.operate.revive("q", ["dead"])
        broker.cancel("q", "c", value("c", "c").identity)
        assert hand.again() == first
        assert hand.again() == first

    def test_every_settlement_may_be_repeated(self, broker: Broker) -> None:
        """In part done, failed, buried, postponed, released: nothing happens twice."""
        hand = ScriptedWorker(broker)
        answer = settle_each(broker, hand)
        assert answer.refused == []
        assert hand.again() == answer
        assert hand.again() == answer
        left: dict[str, dict[str, int]] = {}
        while claims := hand.claim():
            for claim in claims:
                there = left.setdefault(claim.key, {})
                assert not there.keys() & attempts(claim), "a call came twice"
                there |= attempts(claim)
            hand.settle(*map(done, claims))
        assert left == {
            "retry": {"retry 2": 2, "retry 3": 1},
            "bury": {"bury 3": 1},
            "postpone": {"postpone 2": 2, "postpone 3": 1},
            "release": {"release 2": 1, "release 3": 1},
            "child": {f"of {name}": 1 for name in VERDICTS},
        }

    @needs("inspect", "queued_jobs")
    def test_a_repeated_settlement_changes_nothing_that_is_shown(self, broker: Broker) -> None:
        """Neither of a key nor of the numbers of its queue."""
        names = VERDICTS
        hand = ScriptedWorker(broker)
        answer = settle_each(broker, hand)
        found = {name: broker.inspect.find("q", name) for name in (*names, "child")}
        counts = numbers(broker)
        assert places(broker, "child") == {"queued": [f"of {name}" for name in names]}
        assert hand.again() == answer
        assert {name: broker.inspect.find("q", name) for name in (*names, "child")} == found
        assert numbers(broker) == counts
        assert {name: places(broker, name) for name in names} == {
            "done": {},
            "retry": {"queued": ["retry 2", "retry 3"]},
            "bury": {"queued": ["bury 3"], "dead": ["bury 2"]},
            "postpone": {"queued": ["postpone 2", "postpone 3"]},
            "release": {"queued": ["release 2", "release 3"]},
        }
        assert (counts.processed, counts.failed) == (5, 2)

    @needs("inspect", "collecting")
    def test_a_repeated_enqueue_changes_nothing(self, broker: Broker) -> None:
        """Of calls whatever became of the key meanwhile, as long as they are there; of values while they are queued."""
        jobs = [call("k", "a"), call("k", "b", delay_s=5), value("c", "v"), value("c", "w", score=1.0)]
        broker.enqueue(jobs)
        before = [broker.inspect.find("q", key) for key in "kc"]
        broker.enqueue(jobs)
        assert [broker.inspect.find("q", key) for key in "kc"] == before
        assert numbers(broker).length == 2

    @needs("inspect", "operate", "collecting")
    def test_other_repeats_change_nothing(self, broker: Broker) -> None:
        """Giving back, reviving, burying, deleting, cancelling, moving: the second time there is nothing to do."""
        calls(broker, "k", "a", "b")
        values(broker, "c", {"v": 1.0})
        hand = ScriptedWorker(broker)
        hand.settle(*(failed(claim, "no", 5, 60.0) for claim in hand.claim()))
        assert [broker.operate.bury_failed("q", ["k", "c"]) for _ in range(2)] == [2, 0]
        assert [broker.operate.revive("q", ["k", "c"]) for _ in range(2)] == [2, 0]
        assert [broker.cancel("q", "k", "a") for _ in range(2)] == [True, False]
        assert [broker.reschedule("q", "k", "b", perform_at=5.0) for _ in range(2)] == [True, True]
        hand.claim()
        declare_dead(broker, hand)
        assert [broker.reclaim() for _ in range(2)] == [2, 0]
        assert (places(broker, "k"), places(broker, "c")) == ({"queued": ["b"]}, {"queued": ["v"]})

    @needs("inspect", "operate", "shards")
    def test_nothing_is_lost_and_nothing_doubled(self, broker: Broker, clock: ManualClock) -> None:
        """Accepted = waiting + running + done + dead, at every step of a long and mixed life."""
        for seed in range(6):
            _RandomLife(broker, clock, seed).live(150)


VERDICTS = ("done", "retry", "bury", "postpone", "release")


def settle_each(broker: Broker, hand: ScriptedWorker) -> Answer:
    """Settle a claim of three calls with each verdict: the first call is done, with `done` all are. Each run sends."""
    claims: dict[str, Claim] = {}
    for name in VERDICTS:
        calls(broker, name, f"{name} 1", f"{name} 2", f"{name} 3")
        claims[name] = hand.one()
    settlements = [
        done(claims["done"]),
        failed(claims["retry"], "no", 5, 0.0, done=1),
        buried(claims["bury"], "no", done=1),
        postponed(claims["postpone"], 0.0, done=1),
        released(claims["release"], done=1),
    ]
    for settlement in settlements:
        settlement.outbox = [call("child", f"of {settlement.verdict}")]
    return hand.turn(0, *settlements)


class _RandomLife:
    """Keyed jobs of a few keys, and whatever may happen to them, by the numbers of a seed. It keeps the books."""

    def __init__(self, broker: Broker, clock: ManualClock, seed: int) -> None:
        self.broker = broker
        self.clock = clock
        self.chance = random.Random(seed)
        self.keys = [f"life-{seed}-{n}" for n in range(4)]
        self.hand = ScriptedWorker(broker, f"worker-{seed}")
        self.deaths = 0
        self.held: list[Settlement] = []
        self.accepted = 0
        self.finished: Counter[str] = Counter()

    def live(self, steps: int) -> None:
        acts = [self._enqueue, self._enqueue, self._claim, self._settle, self._settle, self._die, self._revive]
        for _ in range(steps):
            self.clock.advance(self.chance.choice((0, 0, 1, 7)))
            self.chance.choice([*acts, self._reshard] if not self.held else acts)()
            self._count()
        self._drain()

    def _enqueue(self) -> None:
        jobs = []
        for _ in range(self.chance.randint(1, 4)):
            self.accepted += 1
            id = f"{self.keys[0]}/{self.accepted}"
            jobs.append(call(self.chance.choice(self.keys), id, delay_s=self.chance.choice((-5.0, 0.0, 5.0))))
        self.broker.enqueue(jobs)

    def _claim(self) -> None:
        for claim in self.hand.claim(limit=2, max_payloads=self.chance.choice((1, 3, 100))):
            done_of = self.chance.randint(0, len(claim.payloads) - 1)
            self.held.append(
                self.chance.choice(
                    [
                        done(claim),
                        failed(claim, "no", 2, self.chance.choice((0.0, 3.0)), done=done_of),
                        buried(claim, "no", done=done_of),
                        postponed(claim, 1.0, done=done_of),
                        released(claim, done=done_of),
                    ]
                )
            )

    def _settle(self) -> None:
        if self.held:
            settlement = self.held.pop(self.chance.randrange(len(self.held)))
            assert self.hand.settle(settlement) == []
            self.finished.update(payload.identity for payload in settlement.claim.payloads[: settlement.done])

    def _die(self) -> None:
        declare_dead(self.broker, self.hand)
        assert self.broker.reclaim() == len(self.held)
        self.deaths += 1
        self.held = []
        self.hand = ScriptedWorker(self.broker, f"{self.hand.name}+")

    def _revive(self) -> None:
        self.broker.operate.revive("q", self.chance.sample(self.keys, 2))

    def _reshard(self) -> None:
        shards = self.chance.randint(1, 9)
        while not self.broker.shards.reshard("q", shards, limit=2).done:
            pass

    def _count(self) -> None:
        kept = sum(view.size for key in self.keys for view in self.broker.inspect.find("q", key))
        assert kept + len(self.finished) == self.accepted
        assert all(times == 1 for times in self.finished.values())

    def _drain(self) -> None:
        """In the end all is done, each call once."""
        self._die()
        self.broker.operate.revive("q", self.keys)
        self.clock.advance(1_000)
        while claims := self.hand.claim():
            assert self.hand.settle(*(done(claim) for claim in claims)) == []
            self.finished.update(payload.identity for claim in claims for payload in claim.payloads)
        self._count()
        assert len(self.finished) == self.accepted
