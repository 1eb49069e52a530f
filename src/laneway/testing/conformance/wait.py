"""Tests of waiting: an idle worker wakes as soon as there is work.

No test measures time. A wait that should end soon has a long timeout, and the test fails if it is reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ...broker import Broker, complete
from ...clock import ManualClock, SystemClock
from ...jobs.settlement import failed, released
from .fixtures import CANCELLABLE, LONG_S, BrokerFixtures, MakeBroker, ScriptedWorker, job, needs, put


class WaitThread(threading.Thread):
    """A thread that waits, and what it was told. To be told nothing within LONG_S is an error."""

    def __init__(self, broker: Broker, *queues: str) -> None:
        super().__init__(daemon=True)
        self._told: set[str] = set()
        self._error: BaseException | None = None
        self._wait: Callable[[], set[str]] = lambda: broker.wait(queues, LONG_S * 2)
        self.start()

    def run(self) -> None:
        try:
            self._told = self._wait()
        except BaseException as error:  # `result` raises it where the test sees it
            self._error = error

    def result(self) -> set[str]:
        self.join(LONG_S)
        assert not self.is_alive(), "the wait was not ended"
        if self._error is not None:
            raise self._error
        return self._told


class WaitTests(BrokerFixtures):
    def test_a_queue_with_due_jobs_is_told_at_once(self, broker: Broker, clock: ManualClock) -> None:
        """Those of the queues asked for that have one, and no others."""
        broker.enqueue([job("a"), job("b", queue="two"), job("c", queue="three"), job("d", queue="four", delay_s=60)])
        ScriptedWorker(broker)
        assert broker.wait(["q", "two", "four"], LONG_S) == {"q", "two"}
        assert broker.wait(["four", "q"], LONG_S) == {"q"}

    def test_a_wait_ends_at_its_timeout(self, broker: Broker) -> None:
        """With nothing due: an empty queue, one whose only job runs or is delayed, an unknown one, none at all."""
        put(broker, "running")
        ScriptedWorker(broker).one()
        put(broker, "later", delay_s=3_600)
        assert broker.wait(["q"], 0.01) == set()
        assert broker.wait(["q"], 0.0) == set()
        assert broker.wait(["nowhere"], 0.01) == set()
        assert broker.wait([], 0.01) == set()

    @needs("priorities")
    def test_a_job_of_any_priority_ends_a_wait(self, broker: Broker) -> None:
        """Also of one that was never used before."""
        put(broker, "a", priority=-7)
        assert broker.wait(["q"], LONG_S) == {"q"}

    def test_a_job_that_is_enqueued_ends_a_wait(self, broker: Broker) -> None:
        """From another thread, while the wait is under way or about to begin."""
        broker.declare("other", 2)
        ScriptedWorker(broker)
        waiter = WaitThread(broker, "other", "q")
        put(broker, "a")
        assert waiter.result() == {"q"}

    def test_a_job_in_an_outbox_ends_a_wait(self, broker: Broker) -> None:
        """What a run enqueued is work like any other; so is what failed or was given back, once it is due."""
        put(broker, "a", "b", "c")
        broker.declare("other", 2)
        hand = ScriptedWorker(broker)
        first, second, third = hand.claim()
        waiter = WaitThread(broker, "q")
        hand.settle(failed(first, "no", 25, 0.0))
        assert waiter.result() == {"q"}
        hand.one()
        waiter = WaitThread(broker, "q")
        hand.settle(released(second))
        assert waiter.result() == {"q"}
        hand.one()
        waiter = WaitThread(broker, "q")
        broker.renew(hand.name, [], third.token + 1)
        assert waiter.result() == {"q"}

    @needs("leases")
    def test_what_a_dead_worker_held_ends_a_wait(self, broker: Broker) -> None:
        """When it is taken back."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.one()
        waiter = WaitThread(broker, "q")
        broker.declare_dead(hand.name, broker.leases()[hand.name][0])
        broker.reclaim()
        assert waiter.result() == {"q"}

    def test_what_a_worker_leaves_behind_ends_a_wait(self, broker: Broker) -> None:
        """Another worker may take it at once."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        ScriptedWorker(broker, "worker-2")
        hand.one()
        waiter = WaitThread(broker, "q")
        broker.leave(hand.name)
        assert waiter.result() == {"q"}

    def test_a_moved_job_ends_a_wait(self, broker: Broker) -> None:
        """If it is due at its new time."""
        put(broker, "a", delay_s=3_600, hints=CANCELLABLE)
        ScriptedWorker(broker)
        waiter = WaitThread(broker, "q")
        broker.reschedule("q", "a")
        assert waiter.result() == {"q"}

    @needs("operate")
    def test_a_revived_job_ends_a_wait(self, broker: Broker) -> None:
        """It is due at once."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 0, 0.0))
        waiter = WaitThread(broker, "q")
        broker.operate.revive("q", ["a"])
        assert waiter.result() == {"q"}

    def test_a_delayed_job_ends_a_wait_when_it_becomes_due(self, make_broker: MakeBroker) -> None:
        """Without anybody doing anything; this one runs on the real clock."""
        broker = complete(make_broker(SystemClock()))
        put(broker, "a", delay_s=0.05)
        put(broker, "b", delay_s=3_600)
        hand = ScriptedWorker(broker)
        # In a thread: a wait that runs into its timeout has the right answer by then, and must not pass.
        assert WaitThread(broker, "q").result() == {"q"}
        assert [claim.key for claim in hand.claim()] == ["a"]
        broker.close()

    def test_a_nudge_ends_every_wait(self, broker: Broker) -> None:
        """With or without something due: a worker that is told to stop must not wait out its timeout."""
        waiters = [WaitThread(broker, "q"), WaitThread(broker, "other")]
        until = time.monotonic() + LONG_S  # the waits end by themselves after twice that
        for waiter in waiters:
            while waiter.is_alive():  # a nudge before the wait has begun does not count
                assert time.monotonic() < until, "nudges do not end a wait"
                broker.nudge()
                waiter.join(0.005)
        assert [waiter.result() for waiter in waiters] == [set(), set()]

    def test_a_nudge_does_not_end_the_waits_after_it(self, broker: Broker) -> None:
        """It is for those that are under way; a later one ends when there is something to do."""
        ScriptedWorker(broker)
        broker.nudge()
        waiter = WaitThread(broker, "q")
        waiter.join(0.05)  # so that it has begun to wait, and is not just told what there is
        put(broker, "a")
        assert waiter.result() == {"q"}
