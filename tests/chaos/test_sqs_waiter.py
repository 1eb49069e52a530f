"""Pollers are killed with -9 at every step between the waiter table and the queue: no job is lost.

`make chaos` kills 200 times, `make test` once at each step. Each poller dies while it holds up to ten plain jobs,
or calls of a few keys; the next poller goes on after these claims have ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice

import pytest

from laneway.brokers.aws.dynamodb.delayed_jobs import CLAIM_S
from laneway.clock import ManualClock
from tests.support.aws.delay_table import Sends, Waiters, waiting
from tests.support.aws.servers import FakeProcess, FakeServer
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

#: Places, and how often each is reached before the process dies. Ten of a batch are deleted at the same time.
STEPS = [("after table claim", 1), ("after table send", 1), ("before table delete", 1)]
STEPS += [("before table delete", 5), ("after table claim", 2), ("after table send", 3)]
KILLS = 200 if LARGE else len(STEPS)
#: For two pollers.
ITEMS = 1_000 if LARGE else 200
NOW = 1_700_000_000.0


@contextmanager
def pollers(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.chaos.waiter", url]
    path = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def poll(process: subprocess.Popen[str], place: str, count: int, ahead_s: float) -> int:
    """Have a poller poll, and die if it comes to that place so often. Returns its exit code."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(f"{place} {count} {ahead_s}", file=process.stdin, flush=True)
    return int(process.stdout.readline())


def test_killing_pollers_loses_nothing() -> None:
    server = FakeProcess.start()
    waiters = Waiters(server)
    waiters.make_table()
    waiters.make_queues("q", "q.fifo")
    plain: list[str] = []
    calls: list[str] = []
    died: Counter[str] = Counter()
    ahead_s = 0.0
    with pollers(server.url()) as process:
        for number, (place, count) in enumerate(islice(cycle(STEPS), KILLS)):
            new = [f"p{number}-{n}" for n in range(7)]
            keyed = [f"c{number:03}-{n}" for n in range(6)]
            waiters.table().delayed.put([waiting(id, NOW + number) for id in new])
            waiters.table().delayed.put([waiting(id, NOW + number, key=f"k{n % 3}") for n, id in enumerate(keyed)])
            plain += new
            calls += keyed
            code = poll(process, place, count, ahead_s)
            assert code == -9, f"nobody came to {place} for the {count}th time"
            died[place] += 1
            ahead_s += CLAIM_S + 1
        assert poll(process, "nowhere", 1, ahead_s) == 0
    sent, sent_calls = waiters.sent_ids("q"), waiters.sent_ids("q.fifo")
    print(f"killed {dict(died)}: {len(plain)} jobs, {len(sent) - len(plain)} sent once more; {len(calls)} calls")
    assert died.total() == KILLS
    assert set(sent) == set(plain)
    assert len(sent) - len(plain) <= 10 * KILLS
    assert sorted(sent_calls) == calls, "SQS itself drops what is sent twice"
    for key in range(3):
        of_key = [id for id in calls if int(id[-1]) % 3 == key]
        assert [id for id in sent_calls if id in of_key] == of_key
    assert waiters.waiting_ids() == []
    server.end()


def test_two_pollers_share_the_work_and_send_each_item_once(fake: FakeServer) -> None:
    clock = ManualClock(NOW)
    one, two = Waiters(fake, clock), Waiters(fake, clock)
    one.make_table()
    one.make_queues("q", "q.fifo")
    ids = [f"j{n:05}" for n in range(ITEMS)]
    one.table().delayed.put(
        [waiting(id, NOW + n % 3, key=f"k{n % 50}" if n % 10 == 0 else "") for n, id in enumerate(ids)]
    )
    clock.advance(3)
    begin = threading.Barrier(2)
    counts: dict[int, int] = {}

    def poll(n: int, waiters: Waiters) -> None:
        sends = Sends(waiters)
        poller = waiters.poller()
        begin.wait()
        for _ in range(20):
            if poller.round() > 5:
                break
        counts[n] = len(sends.entries)

    threads = [threading.Thread(target=poll, args=(n, each)) for n, each in enumerate((one, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.poller().round() == 300
    sent = one.sent_ids() + one.sent_ids("q.fifo")
    assert sorted(sent) == ids
    assert min(counts.values()) > ITEMS // 10
    assert one.requests("dynamodb") + two.requests("dynamodb") <= 3 * len(
        ids
    )  # each would be asked for twice, if they did not make way
