"""Enqueueing for collecting tasks: key, payload, score and due time; a refused call stores nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from laneway import Batch, Context, EnqueueError, Item, Laneway, Middleware
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, Debounce, Kind, Payload
from laneway.jobs.merge import identity_of

pytestmark = pytest.mark.unit


@pytest.fixture
def app():
    return Laneway(broker=MemoryBroker(clock=ManualClock(1_000.0)))


@pytest.fixture
def sync(app):
    @app.collect
    def sync(batch: Batch[Any]) -> None: ...

    return sync


@pytest.fixture
def own(app):
    """Computes key and score from its payloads."""

    @app.collect(key=lambda payload: payload["id"], score=lambda payload: payload["v"])
    def own(batch: Batch[dict[str, Any]]) -> None: ...

    return own


@pytest.fixture
def plain(app):
    return app.task(name="plain")(lambda n=None: None)


@pytest.fixture
def context(app, sync):
    claim = Claim("sync", 1, "a", 1, 0.0, -1, 1, 0, [Payload("1")], None, None, Kind.COLLECTING)
    return Context(app, claim, sync)


def payloads(app: Laneway, queue: str, key: str) -> dict[str, float]:
    [job] = app.broker.inspect.find(queue, key)
    return {payload.body: payload.score for payload in job.payloads}


def test_a_payload_is_stored_for_its_key(app, sync):
    handle = sync.enqueue("order-17", {"b": 2, "a": 1})
    [job] = app.broker.inspect.find("sync", "order-17")
    assert (job.kind, job.key, job.perform_at) == (Kind.COLLECTING, "order-17", 1_000.0)
    assert job.payloads[0].body == '{"a":1,"b":2}'
    assert job.payloads[0].identity == identity_of('{"a":1,"b":2}')
    assert (handle.id, handle.key, handle.queue) == ("order-17", "order-17", "sync")


def test_equal_payloads_are_one_with_the_smaller_score(app, sync):
    # The worked example of the merging rules.
    for payload, score in (("v1", 1), ("v2", 3), ("v2", 2), ("v3", 4)):
        sync.using(score=score).enqueue("a", payload)
    assert payloads(app, "sync", "a") == {'"v1"': 1, '"v2"': 2, '"v3"': 4}


def test_without_a_payload_it_is_the_empty_text(app, sync):
    sync.enqueue("a")
    sync.enqueue("a", "")
    sync.enqueue(key="a", payload="")
    assert list(payloads(app, "sync", "a")) == ['""']


@pytest.mark.parametrize("payload", [None, 0, False, [], {}, "text"])
def test_a_payload_that_is_nothing_is_one_all_the_same(app, sync, payload):
    sync.enqueue("a", payload)
    [body] = payloads(app, "sync", "a")
    assert sync.load(body) == payload


def test_a_key_is_made_text(app, sync):
    assert sync.enqueue(17, "x").key == "17"


def test_key_and_score_come_from_the_payload_unless_given(app, own):
    assert own.enqueue(payload={"id": "a", "v": 7}).key == "a"
    assert own.enqueue("b", {"id": "a", "v": 8}).key == "b"
    own.using(score=1).enqueue("b", {"id": "a", "v": 9})
    own.enqueue_many([Item("b", {"id": "a", "v": 10}, score=2), Item(payload={"id": "b", "v": 11})])
    assert list(payloads(app, "own", "a").values()) == [7.0]
    assert list(payloads(app, "own", "b").values()) == [1.0, 2.0, 8.0, 11.0]


def test_options_come_through_using_and_add_up(app, sync):
    def job(task):
        return app.outgoing(task, ("a", "x"), {})

    assert (job(sync).score, job(sync).delay_s, job(sync).perform_at) == (None, 0.0, None)
    used = sync.using(score=7).using(delay=60)
    assert (job(used).score, job(used).delay_s) == (7.0, 60.0)
    assert job(used.using(perform_at=datetime.fromtimestamp(5, UTC))).perform_at == 5.0
    assert sync.sending.score is None


def test_quiet_is_waited_for_unless_a_time_is_given(app):
    sync = app.collect(name="sync", grace=5, max_wait=60, max_size=3)(lambda batch: None)
    quiet = Debounce(5.0, 60.0, 3)
    found = [
        app.outgoing(task, ("a",), {}).quiet
        for task in (sync, sync.using(score=1), sync.using(delay=0), sync.using(delay=5), sync.using(perform_at=5))
    ]
    assert found == [quiet, quiet, None, None, None]
    sync.enqueue_many([("a", 1), Item("b", 1, perform_at=2_000), Item("c", 1, score=3)])
    assert [app.broker.inspect.find("sync", key)[0].perform_at for key in "abc"] == [1_005.0, 2_000.0, 1_005.0]


def test_many_are_stored_in_their_order(app, sync):
    handles = sync.enqueue_many(
        [
            ("a", 3),
            ("a", 1),
            ("b",),
            Item("a", 2, score=-1),
            Item("b", payload=5, perform_at=9),
            Item(key="c", payload=1),
        ]
    )
    assert [handle.key for handle in handles] == ["a", "a", "b", "a", "b", "c"]
    assert list(payloads(app, "sync", "a")) == ["2", "3", "1"]
    assert list(payloads(app, "sync", "b")) == ['""', "5"]
    assert sync.enqueue_many([]) == []


BAD: list[tuple[Any, str]] = [
    ((), "Task sync: it is given a key and a payload; both are missing."),
    (("a", 1, 2), "Task sync: it is given a key and a payload; too many positional arguments."),
    (("", 1), "Task sync: key must not be empty."),
    ((None, 1), "Task sync: key must be text or something with a text of its own, not NoneType."),
    (("x" * 513, 1), "Task sync: key is 513 bytes"),
    (("\ud800", 1), "Task sync: key holds half of a surrogate pair"),
    (("a", {1, 2}), "Task sync: the payload would come back with list instead of set; give plain JSON values"),
    (("a", float("nan")), "Task sync: the payload would come back with null instead of float"),
    (("a", object()), "Task sync: object cannot be stored as JSON"),
    (("a", "\udfff"), "Task sync: a text holds half of a surrogate pair"),
    (("a", "x" * 1_048_575), "Task sync: its payload is 1048577 bytes, and this broker takes 1048576 at most"),
    (Item("a", 1, score=float("nan")), "score must be a finite number, not nan."),
    (Item("a", 1, score="1"), "score must be a number, not str."),
    (Item("a", 1, score=True), "score must be a number, not bool."),
    (Item("a", 1, score=1e300), "score must be within ±1e+290."),
    (Item("a", 1, perform_at=float("nan")), "perform_at must be a finite number"),
    (Item("a", 1, key="b"), "Task sync: it is given a key and a payload; multiple values for argument 'key'."),
    (Item("a", pay=1), "Task sync: it is given a key and a payload; got an unexpected keyword argument 'pay'."),
    (Item(payload=1), "Task sync: the key is missing; give it, or declare the task with key=…."),
    (["a", 1], "Task sync: enqueue_many takes tuples of key and payload or Item(…), not list."),
    ("ab", "Task sync: enqueue_many takes tuples of key and payload or Item(…), not str."),
]


@pytest.mark.parametrize(("bad", "sentence"), BAD, ids=range(len(BAD)))
def test_one_bad_item_is_named_and_none_is_stored(sync, refused, bad, sentence):
    with refused("Item 1: ", sentence, "Nothing was stored."):
        sync.enqueue_many([("a", 1), bad, ("b", 2)])


@pytest.mark.parametrize(("bad", "sentence"), BAD[:11], ids=range(11))
def test_a_bad_call_is_refused(app, sync, context, refused, bad, sentence):
    with refused(sentence):
        sync.enqueue(*bad)
    with refused(sentence):
        context.enqueue(sync, *bad)
    assert context.outbox == []


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda sync: sync.using(queue="other"), "Task sync: a collecting task has one queue, sync; leave queue out."),
        (lambda sync: sync.using(key="a"), "Task sync: the key is the first argument of enqueue; leave it out here."),
        (lambda sync: sync.using(score=float("inf")), "score must be a finite number, not inf."),
        (lambda sync: sync.using(delay=1, perform_at=2), "Give a delay or a perform_at, not both."),
        (lambda sync: sync.enqueue(payload=1), "Task sync: the key is missing"),
        (lambda sync: sync.app.enqueue(sync), "Task sync: it is given a key and a payload; both are missing."),
        (lambda sync: sync.app.using(queue="x").enqueue(sync), "Task sync: a collecting task has its own queue"),
        (lambda sync: sync.app.using(key="x").enqueue(sync), "Task sync: a collecting task has its own queue"),
    ],
    ids=range(8),
)
def test_what_a_collecting_task_cannot_do_is_refused(sync, refused, call, sentence):
    with refused(sentence):
        call(sync)


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"v": 1}, "Task own: KeyError was raised by its key function."),
        ({"id": "a"}, "Task own: KeyError was raised by its score function."),
        ({"id": "", "v": 1}, "Task own: key must not be empty."),
        ({"id": None, "v": 1}, "Task own: key must be text"),
        ({"id": "a", "v": "1"}, "Task own: score must be a number, not str."),
        ({"id": "a", "v": None}, "Task own: score must be a number, not NoneType."),
        ({"id": "a", "v": 1e300}, "Task own: score must be within"),
    ],
    ids=range(7),
)
def test_what_is_computed_is_checked_as_well(own, refused, payload, sentence):
    with refused(sentence):
        own.enqueue(payload=payload)
    with refused("Item 1: ", sentence):
        own.enqueue_many([("a", {"id": "a", "v": 1}), Item(payload=payload)])


def test_a_payload_in_the_place_of_the_key_is_refused(own, refused):
    with refused("Task own: its key comes from the payload; give the payload by its name, as in payload=…."):
        own.enqueue("a")


def test_what_a_function_raised_is_the_cause(own):
    with pytest.raises(EnqueueError) as caught:
        own.enqueue(payload={"v": 1})
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_task_of_another_app_is_refused(app, sync):
    other = Laneway(broker=MemoryBroker())
    with pytest.raises(EnqueueError, match="Task sync belongs to another app; enqueue it there"):
        other.outgoing(sync, ("a",), {})


# -- in a run ------------------------------------------------------------------------------------------


def test_a_run_holds_payloads_back(app, sync, own, context):
    handle = context.enqueue(sync, "order-17", {"v": 1})
    context.enqueue(sync.using(score=7), key="b", payload="x")
    context.enqueue(own, payload={"id": "c", "v": 3})
    found = [(job.queue, job.kind, job.key, job.body, job.score) for job in context.outbox]
    assert found == [
        ("sync", Kind.COLLECTING, "order-17", '{"v":1}', None),
        ("sync", Kind.COLLECTING, "b", '"x"', 7.0),
        ("own", Kind.COLLECTING, "c", '{"id":"c","v":3}', 3.0),
    ]
    assert (handle.id, handle.status()) == ("order-17", "gone")


def test_what_a_collecting_run_enqueues_without_a_queue_goes_to_default(context, plain):
    context.enqueue(plain)
    context.enqueue(plain.using(key="k"))
    assert [job.queue for job in context.outbox] == ["default", "default"]


# -- its queue is its alone ----------------------------------------------------------------------------


def test_nothing_else_is_sent_to_its_queue(app, sync, plain, context, refused):
    for send in (
        lambda: plain.using(queue="sync").enqueue(),
        lambda: plain.using(queue="sync", key="a").enqueue(),
        lambda: plain.using(queue="sync").enqueue_many([(1,)]),
        lambda: context.enqueue(plain.using(queue="sync")),
        lambda: app.enqueue_body("{}", queue="sync"),
    ):
        with refused("cannot go to the queue sync, which belongs to the collecting task sync alone; give another"):
            send()
    assert context.outbox == []


class Changing(Middleware):
    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def around_enqueue(self, jobs):
        for job in jobs:
            for name, value in self.changes.items():
                setattr(job, name, value)
        yield


def app_with(middleware: Middleware) -> Laneway:
    app = Laneway(broker=MemoryBroker(), middleware=[middleware])
    app.collect(name="sync")(lambda batch: None)
    app.task(name="plain")(lambda: None)
    return app


def test_a_middleware_that_changes_a_payload_makes_it_another_one():
    app = app_with(Changing(body='"other"'))
    handle = app.registry.collector_of("sync").enqueue("a", "x")
    [job] = app.broker.inspect.find("sync", "a")
    assert job.payloads[0].identity == identity_of('"other"')
    assert handle.status() == "queued"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key": ""}, "The key of a job in sync must not be empty."),
        ({"score": float("nan")}, "The score of a payload of 'a' must be a finite number"),
        ({"identity": ""}, "The job 'a' has no identity"),
    ],
)
def test_a_middleware_cannot_bring_in_what_is_refused(changes, sentence):
    app = app_with(Changing(**changes))
    with pytest.raises(EnqueueError) as caught:
        app.registry.collector_of("sync").enqueue("a", "x")
    assert sentence in str(caught.value)
    assert app.broker.inspect.stats() == []


def test_a_middleware_cannot_send_a_ticket_to_its_queue():
    app = app_with(Changing(queue="sync"))
    with pytest.raises(EnqueueError, match="cannot go to the queue sync, which belongs to the collecting task"):
        app.registry.find("plain").enqueue()
    assert app.broker.inspect.stats() == []


# -- its handle ----------------------------------------------------------------------------------------


def test_a_handle_is_about_one_payload_of_the_key(app, sync):
    first, second = sync.using(delay=60).enqueue("a", 1), sync.enqueue("a", 2)
    assert (first.status(), second.status()) == ("delayed", "delayed")
    assert first.cancel()
    assert not first.cancel()
    assert (first.status(), second.status()) == ("cancelled", "delayed")
    assert second.reschedule(delay=5)
    assert list(payloads(app, "sync", "a")) == ["2"]
    assert app.broker.inspect.find("sync", "a")[0].perform_at == 1_005.0
