"""RunIds: ids of the jobs that a run enqueues, derived from the run.

Brokers that send these jobs before the run is settled need them: a repeated run sends the same jobs.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import pytest

from laneway import Context, Key, Laneway
from laneway.broker import Capabilities
from laneway.brokers.sqlite import MemoryBroker
from laneway.ids import RunIds
from laneway.jobs.data import Claim, Kind, NewJob, Payload

pytestmark = pytest.mark.unit


class Deriving(MemoryBroker):
    capabilities = Capabilities(shared=False, derives_ids=True)


def app_on(broker: MemoryBroker) -> Laneway:
    app = Laneway(broker=broker)

    @app.task
    def note(number: int) -> None: ...

    @app.task
    def order(key: Annotated[str, Key], number: int) -> None: ...

    @app.collect
    def total(batch: Any) -> None: ...

    return app


def run_of(app: Laneway, key: str = "run", kind: Kind = Kind.PLAIN, identity: str = "") -> Context:
    claim = Claim("default", 1, key, 7, 0.0, -1, 1, 0, [Payload("x", 0.0, identity)], kind=kind)
    return Context(app, claim, app.registry.find("note"))


def sent(context: Context, *numbers: int) -> list[NewJob]:
    """What a run has sent: a plain job and a call for each number."""
    for number in numbers:
        context.enqueue(context._app.registry.find("note"), number)
        context.enqueue(context._app.registry.find("order"), "k", number)
    return context.outbox


def ids(jobs: list[NewJob]) -> list[str]:
    return [job.identity or job.key for job in jobs]


def test_a_repeated_run_sends_the_same_jobs():
    first, second = (sent(run_of(app_on(Deriving())), 1, 2) for _ in range(2))
    assert first == second
    assert len(set(ids(first))) == 4
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids(first))
    calls = [job for job in first if job.kind is Kind.KEYED]
    assert [msgspec.json.decode(job.body)["_job_id"] for job in calls] == [job.identity for job in calls]
    assert [job.key for job in calls] == ["k", "k"]


def test_equal_jobs_of_one_run_are_several():
    app = app_on(Deriving())
    once, twice = sent(run_of(app), 1), sent(run_of(app), 1, 1)
    assert len(set(ids(twice))) == 4
    assert ids(twice)[:2] == ids(once)


def test_the_order_does_not_matter():
    """A run that goes over a set may be killed when one of two jobs was sent, and then begin with the other."""
    app = app_on(Deriving())
    forth, back = sent(run_of(app), 1, 2, 3), sent(run_of(app), 3, 1, 2)
    assert ids(forth) != ids(back)
    assert {(job.body, job.key, job.identity) for job in forth} == {(job.body, job.key, job.identity) for job in back}


def test_other_runs_send_other_jobs():
    app = app_on(Deriving())
    runs = [run_of(app, "a"), run_of(app, "b"), *(run_of(app, "a", Kind.KEYED, call) for call in ("1", "2"))]
    assert len({one for run in runs for one in ids(sent(run, 1))}) == 2 * len(runs)


def test_queues_keys_and_bodies_are_told_apart():
    made = [RunIds("r")(*parts) for parts in (("q", "k", "b"), ("qk", "", "b"), ("q", "kb", ""), ("", "qkb", ""))]
    assert len(set(made)) == 4


@pytest.mark.parametrize(("broker", "kind"), [(MemoryBroker, Kind.PLAIN), (Deriving, Kind.COLLECTING)])
def test_others_have_ids_by_chance(broker: type[MemoryBroker], kind: Kind):
    """A collecting job's key comes again and again, and the next run must not be taken for the last."""
    app = app_on(broker())
    first, second = (ids(sent(run_of(app, kind=kind), 1)) for _ in range(2))
    assert not set(first) & set(second)


def test_instances_and_payloads_too():
    app = app_on(Deriving())

    @app.task
    class Post:
        def run(self) -> None: ...

    both = []
    for _ in range(2):
        context = run_of(app)
        context.using(delay=5).enqueue(Post())
        context.enqueue(app.registry.collector_of("total"), "k", 1)
        both.append(context.outbox)
    assert both[0] == both[1]
