"""Chaos test: Cluster nodes are killed and restarted under load. No job is lost or stuck, no key runs in parallel."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from laneway.broker import Broker
from laneway.brokers.redis import RedisBroker
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Claim
from laneway.jobs.settlement import Settlement, done
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, numbers
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, servers, wait_until

pytestmark = pytest.mark.chaos

_T = TypeVar("_T")

KEYS = 12
QUEUES = ("q", "far")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path, node_timeout_ms=1000)
    yield cluster
    cluster.end()


class Journal:
    """What was run when, by all workers of the test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: set[tuple[str, str]] = set()
        #: What went wrong.
        self.faults: list[str] = []
        #: How often each payload was run, by key and in the order of their first runs.
        self.runs: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.aways = 0
        #: How many calls of each key were enqueued.
        self.accepted: Counter[str] = Counter()

    def begin(self, claim: Claim) -> None:
        name = claim.queue, claim.key
        with self._lock:
            if name in self.running:
                self.faults.append(f"{name} runs beside itself")
            self.running.add(name)

    def end(self, claim: Claim) -> None:
        name = claim.queue, claim.key
        with self._lock:
            self.runs[name].update(payload.body for payload in claim.payloads)
            self.running.discard(name)

    def count(self) -> int:
        with self._lock:
            return sum(len(bodies) for bodies in self.runs.values())

    def patiently(self, step: Callable[[], _T], stop: threading.Event) -> _T | None:
        """What a step returns, however long a node is away: the same step again, as a worker does it."""
        while not stop.is_set():
            try:
                return step()
            except BrokerAwayError:
                with self._lock:
                    self.aways += 1
                stop.wait(0.02)
        return None


def work(broker: Broker, name: str, journal: Journal, stop: threading.Event) -> None:
    """Run what there is, until told to stop; each call sends a job of its own."""
    hand = journal.patiently(lambda: ScriptedWorker(broker, name), stop)
    settlements: dict[str, list[Settlement]] = {queue: [] for queue in QUEUES}
    token = 0
    while hand is not None and not stop.is_set():
        for queue in QUEUES:
            ended, settlements[queue] = settlements[queue], []
            for settlement in ended:
                journal.end(settlement.claim)
            taken = iter([lambda: hand.turn(3, *ended, queue=queue)])  # noqa: B023  # it is called at once
            answer = journal.patiently(lambda: next(taken, hand.again)(), stop)  # noqa: B023  # as above
            if answer is None:
                return
            if answer.refused:
                journal.faults.append(f"{name} may not settle {answer.refused}")
            for claim in answer.claims:
                journal.begin(claim)
                sends = [job(f"of {each.body}", f"of {each.body}", queue="far") for each in claim.payloads]
                settlements[queue].append(done(claim, sends if queue == "q" else None))
            token = answer.token
        # All that it holds was just handed out to it, and is of the last two turns; other claims are nobody's.
        held = {settlement.claim.token for some in settlements.values() for settlement in some}
        journal.patiently(lambda: broker.renew(name, held, token), stop)  # noqa: B023  # it is called at once
        journal.patiently(broker.reclaim, stop)


def produce(broker: Broker, part: int, journal: Journal, stop: threading.Event, enough: threading.Event) -> None:
    """Enqueue calls of half of the keys, in order, until there are enough."""
    number = 0
    while not enough.wait(0.05):
        new = [call(f"k{key}", f"k{key}/{number:04}") for key in range(part, KEYS, 2)]
        journal.patiently(lambda: broker.enqueue(new), stop)  # noqa: B023  # it is called at once
        journal.accepted.update(each.key for each in new)
        number += 1


def test_nodes_are_killed_and_come_back(cluster: RedisCluster, open_url: Opener) -> None:
    journal, stop, enough = Journal(), threading.Event(), threading.Event()
    brokers = [RedisBroker(open_url(cluster.url)) for _ in range(3)]
    for queue in QUEUES:
        brokers[0].declare(queue, 6)
    workers = [threading.Thread(target=work, args=(brokers[n % 2], f"worker-{n}", journal, stop)) for n in range(3)]
    producers = [threading.Thread(target=produce, args=(brokers[2], part, journal, stop, enough)) for part in range(2)]
    for thread in (*workers, *producers):
        thread.start()
    try:
        for node in range(3):
            before, aways = journal.count(), journal.aways
            wait_until(lambda: journal.count() > before, lambda: "Nothing is run any more.")  # noqa: B023  # at once
            cluster.kill(node)
            wait_until(lambda: journal.aways > aways, lambda: "Nobody has noticed.")  # noqa: B023  # at once
            cluster.restart(node)
            cluster.wait_ok()
        enough.set()
        for thread in producers:
            thread.join()
        total = 2 * journal.accepted.total()  # each sends another
        wait_until(lambda: journal.count() >= total or journal.faults, lambda: f"{journal.count()} of {total}")
        wait_until(lambda: is_empty(brokers[0]), lambda: str(brokers[0].inspect.stats()))
    finally:
        stop.set()
        enough.set()
        for thread in (*workers, *producers):
            thread.join()
    assert journal.faults == []
    for key, count in journal.accepted.items():
        runs = journal.runs["q", key]
        assert list(runs) == [f"{key}/{number:04}" for number in range(count)]
        for body, times in runs.items():
            # A call that was enqueued again after it had been run is another one. What each has sent is sent once.
            assert 1 <= journal.runs["far", f"of {body}"].total() <= times


def is_empty(broker: RedisBroker) -> bool:
    found = [numbers(broker, queue) for queue in QUEUES]
    return all(stats.length == stats.busy == stats.dead == 0 for stats in found)
