"""Enqueue options `using(group=…)` and `using(cancellable=True)`: made for SQS, carried by every broker."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from laneway import Context, EnqueueError, Key, Laneway
from laneway.jobs.data import Claim, Hints, NewJob, Payload
from laneway.tasks.task import Task

pytestmark = pytest.mark.unit


@pytest.fixture
def app() -> Laneway:
    return Laneway("memory:")


@pytest.fixture
def note(app: Laneway) -> Task[..., ..., Any]:
    @app.task
    def note(number: int = 0) -> None: ...

    return note


@pytest.fixture
def stored(app: Laneway, monkeypatch: pytest.MonkeyPatch) -> list[NewJob]:
    """What the broker is handed."""
    jobs: list[NewJob] = []
    monkeypatch.setattr(app.broker, "enqueue", jobs.extend)
    return jobs


def test_they_travel_with_the_job(note: Task[..., ..., Any], stored: list[NewJob]):
    note.using(group="tenant-7", cancellable=True).enqueue()
    note.using(group="tenant-7").using(cancellable=True, delay=5).enqueue_many([(1,), (2,)])
    note.enqueue()
    note.using(group="tenant-7", cancellable=True).using(group="tenant-8", cancellable=False).enqueue()
    assert [job.hints for job in stored] == [*[Hints("tenant-7", True)] * 3, None, Hints("tenant-8", False)]


def test_instances_have_them_too(app: Laneway, stored: list[NewJob]):
    @app.task
    class Post:
        def run(self) -> None: ...

    app.using(group="a", cancellable=True).enqueue(Post())
    claim = Claim("default", 1, "k", 1, 0.0, -1, 1, 0, [Payload("x")])
    context = Context(app, claim, app.registry.of(Post))
    context.using(group="b", cancellable=True).enqueue(Post())
    assert [job.hints for job in (*stored, *context.outbox)] == [Hints("a", True), Hints("b", True)]


@pytest.mark.parametrize("group", ["", "with space", "ä", "x" * 129, "tab\t", "line\n", 7, b"a"])
def test_a_group_is_what_sqs_takes_as_one(note: Task[..., ..., Any], group: Any):
    with pytest.raises(EnqueueError, match="group must be 1 to 128 letters, digits or punctuation marks"):
        note.using(group=group)


@pytest.mark.parametrize("group", ["a", "x" * 128, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "Tenant.7"])
def test_all_its_characters_may_be_in_it(note: Task[..., ..., Any], stored: list[NewJob], group: str):
    note.using(group=group).enqueue()
    assert stored[0].hints == Hints(group)


@pytest.mark.parametrize("value", [1, "yes"])
def test_cancellable_is_yes_or_no(note: Task[..., ..., Any], value: Any):
    with pytest.raises(EnqueueError, match="cancellable must be True or False"):
        note.using(cancellable=value)


def test_a_call_with_a_key_has_no_other_group(app: Laneway, stored: list[NewJob]):
    @app.task
    def order(key: Annotated[str, Key]) -> None: ...

    @app.task
    def plain() -> None: ...

    for call in (lambda: order.using(group="a").enqueue("k"), lambda: plain.using(group="a", key="k").enqueue()):
        with pytest.raises(EnqueueError, match="grouped by it; leave group or the key out"):
            call()
    order.using(cancellable=True, delay=5).enqueue("k")
    assert [job.hints for job in stored] == [Hints(cancellable=True)]
