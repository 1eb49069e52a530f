"""Workers on SQS are killed, stopped, restarted and cut off.

Their jobs run again when the messages are visible again, and never before the worker has ended them. `make chaos`
does each many times, `make test` once or a few times.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median

import pytest

from tests.chaos.chaos import Size, places_of, run
from tests.support.aws.fault_proxy import Call, FaultProxy
from tests.support.aws.servers import FakeProcess
from tests.support.history import HistoryEvent
from tests.support.worker_processes import LARGE, QUEUES, Server, Site, alive, kill, stop, wait_until

pytestmark = pytest.mark.chaos

LEASE_S = 2.0
KILLS = 20 if LARGE else 1
RESTARTS = 50 if LARGE else 2
#: By so much the answer is late when a worker gives something back.
SLOW_S = 0.2
TABLE = "jobs"
KILLED = Size(100_000, 1_000, 50, 0.002) if LARGE else Size(200, 20, 5, 0.02)


@pytest.fixture(scope="module")
def _server(_aws_environment: None) -> Iterator[FakeProcess]:
    server = FakeProcess.start()
    yield server
    server.end()


@pytest.fixture
def server(_server: FakeProcess) -> FakeProcess:
    _server.reset()
    for queue in QUEUES:
        _server.create_queues(queue, MessageRetentionPeriod=1_209_600)
    _server.create_table(TABLE)
    forgotten = {"Enabled": True, "AttributeName": "expires_at"}
    _server.dynamodb_client.update_time_to_live(TableName=TABLE, TimeToLiveSpecification=forgotten)
    return _server


@pytest.fixture
def sqs(server: FakeProcess, tmp_path: Path) -> Iterator[Site]:
    # Workers wait for messages; whoever looks into the morgue at the end of a test need not.
    site = Site(tmp_path, server.url(table=TABLE, wait=0))
    yield site
    site.close()


def running(site: Site, pids: list[int]) -> list[HistoryEvent]:
    """What has begun in these processes and not ended."""
    ended = {(event.job, event.token) for event in site.events("E")}
    return [each for each in site.events("S") if each.pid in pids and (each.job, each.token) not in ended]


def start(site: Site, *args: str, **environ: str) -> Server:
    return site.start(
        "--lease", str(LEASE_S), *args, **{"LANEWAY_URL": site.url.replace("wait=0", "wait=1"), **environ}
    )


def drained(site: Site) -> None:
    wait_until(lambda: site.left() == 0, site.logs)


def test_killing_workers_loses_nothing(server: FakeProcess, tmp_path: Path) -> None:
    """What waits behind a killed call is visible again after the lease, and in its order."""
    url = server.url(table=TABLE)
    outcome = run(tmp_path, url, KILLED)
    print(outcome, server.requests)
    assert outcome.findings == []
    assert sum(outcome.kills.values()) == KILLED.kills
    assert set(places_of(url)) <= set(outcome.kills)
    assert outcome.repeats <= KILLED.kills * 100
    assert outcome.seconds < 300


def test_what_a_killed_worker_ran_is_taken_over_after_its_lease(sqs: Site) -> None:
    took: list[float] = []
    server = start(sqs).serving()
    for _ in range(KILLS):
        sqs.put("work", 5, takes_s=1.0)
        wait_until(lambda server=server: len(running(sqs, server.children())) > 2, sqs.logs)
        tree = [server.pid, *server.children()]
        for pid in tree:
            stop(pid)
        before = {event.job for event in running(sqs, tree)}
        for pid in tree:
            sqs.history.note("K", pid=pid)
            kill(pid, signal.SIGKILL)
        server.ends()
        killed = sqs.events("K")[-1].t
        server = start(sqs).serving()
        served_s = time.monotonic() - killed  # on a busy machine they may have begun again by then
        wait_until(lambda before=before, killed=killed: before <= begun_since(sqs, killed).keys(), sqs.logs)
        took.append(max(begun_since(sqs, killed)[job] for job in before) - served_s if before else 0.0)
        drained(sqs)
    assert server.stop() == 0
    print(
        f"{KILLS} workers killed, lease {LEASE_S} s: begun again {median(took):.2f} s after the next worker was there,"
    )
    print(f"at most {max(took):.2f} s")
    assert sqs.findings() == []
    assert max(took) < LEASE_S + (2 if LARGE else 10)


def begun_since(site: Site, since: float) -> dict[str, float]:
    """What has begun since then, and how much later."""
    return {event.job: event.t - since for event in site.events("S") if event.t > since}


def test_children_end_with_their_supervisor(sqs: Site) -> None:
    took: list[float] = []
    other = start(sqs, "-c", "4").serving()
    for _ in range(KILLS):
        server = start(sqs, "-c", "4").serving()
        sqs.put_calls(8, 3, prefix=f"n{server.pid}-", takes_s=0.3)
        children = server.children()
        wait_until(lambda children=children: running(sqs, children), sqs.logs)
        server.process.kill()
        took.append(wait_until(lambda children=children: not any(map(alive, children)), sqs.logs))
        for pid in children:
            sqs.history.note("K", pid=pid)
        drained(sqs)
    assert other.stop() == 0
    print(f"{KILLS} supervisors killed: children gone after {median(took):.3f} s, at most {max(took):.3f} s")
    assert sqs.findings() == []
    assert sqs.processes() == []
    assert max(took) < (1 if LARGE else 10)


def test_a_child_that_is_stopped_is_ended_before_others_take_over(sqs: Site) -> None:
    first, second = start(sqs, SETTLED="1").serving(), start(sqs, SETTLED="1").serving()
    pause = threading.Event()
    for number in range(KILLS):
        sqs.put_calls(8, 4, prefix=f"p{number}-", takes_s=0.1)
        wait_until(lambda: len(first.children()) == 1 and running(sqs, first.children()), sqs.logs)
        child = first.child()
        stop(child)
        sqs.history.note("K", pid=child)
        pause.wait(LEASE_S * 1.5)
        assert not alive(child), "its supervisor has ended it"
        drained(sqs)
        first.serving(number + 2)
    assert (first.stop(), second.stop()) == (0, 0)
    print(f"{KILLS} children stopped for {LEASE_S * 1.5} s: {len(sqs.accepted)} calls, {sqs.repeats()} repeats")
    assert sqs.findings() == []
    assert sqs.dead() == []


def test_restarting_with_term_under_load_repeats_nothing(sqs: Site, server: FakeProcess) -> None:
    chance, pause = Random(22), threading.Event()
    with FaultProxy(server.endpoint) as proxy:
        proxy.after = slowly
        url = proxy.url(table=TABLE, wait=1)
        sqs.put("work", 60, takes_s=0.05)
        sqs.put_calls(10, 5, takes_s=0.02)
        old = start(sqs, LANEWAY_URL=url).serving()
        for number in range(RESTARTS):
            put_behind_waiting_calls(sqs, f"w{number}-")
            sqs.put("work", 60, takes_s=chance.choice([0.01, 0.05, 0.3]))
            sqs.put_calls(10, 3, prefix=f"r{number}-", takes_s=0.02)
            new = start(sqs, LANEWAY_URL=url).serving()
            pause.wait(chance.random())
            old.signal("SIGTERM")
            assert old.ends() == 0, old.log()
            old = new
        drained(sqs)
        assert old.stop() == 0
    assert any(map(gives_back, proxy.log))
    print(f"{RESTARTS} restarts; {len(sqs.accepted)} jobs, {sqs.repeats()} repeats")
    assert sqs.findings() == []
    assert (sqs.repeats(), sqs.attempts(), sqs.dead()) == (0, {1}, [])


def put_behind_waiting_calls(site: Site, prefix: str) -> None:
    """Have calls wait in a worker, behind slow jobs, until it gives them back; by then more of their keys are sent."""
    site.put_calls(10, 20, prefix=f"{prefix}quick-")  # it fetches ahead from then on
    drained(site)
    slow = set(site.put("work", 5, takes_s=1.0))
    wait_until(lambda: slow <= site.starts().keys(), site.logs)
    site.put_calls(5, 1, prefix=prefix)
    site.put_calls(5, 2, prefix=prefix, first=1)


def slowly(call: Call) -> None:
    """Answer late when something is given back: the worker may receive it again before."""
    if gives_back(call):
        threading.Event().wait(SLOW_S)


def gives_back(call: Call) -> bool:
    """Whether a worker gives messages back."""
    return any(entry.get("VisibilityTimeout") == 0 for entry in call.params.get("Entries", ()))


def test_a_worker_that_is_cut_off_ends_what_it_runs_before_others_get_it(sqs: Site, server: FakeProcess) -> None:
    go_on, done = threading.Event(), sqs.folder / "done"
    go_on.set()
    with FaultProxy(server.endpoint) as proxy:

        def silent(call: Call) -> None:
            go_on.wait(60)

        proxy.before = silent
        cut = start(sqs, LANEWAY_URL=proxy.url(table=TABLE)).serving()
        sqs.put_calls(1, 1, task="call_until", path=str(done))
        sqs.wait_for(1)
        child = cut.child()
        other = start(sqs).serving()
        time.sleep(LEASE_S)  # it is kept all the time
        assert [event.pid for event in sqs.events("S")] == [child]
        go_on.clear()
        wait_until(lambda: not alive(child), sqs.logs)
        sqs.history.note("K", pid=child)
        sqs.wait_for(2)
        assert sqs.events("S")[-1].pid == other.child()
        done.touch()
        drained(sqs)
        go_on.set()
        assert (cut.stop(), other.stop()) == (0, 0)
    assert "cut off" in cut.log()
    assert sqs.findings() == []
    assert sqs.attempts() <= {1, 2}
