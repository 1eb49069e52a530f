"""Enqueueing: which queue a job goes to, and that a refused call stores nothing."""

from __future__ import annotations

import threading

import pytest

from laneway import Item, Laneway
from laneway.brokers.sqlite import MemoryBroker
from laneway.urls import open_broker

pytestmark = pytest.mark.unit


@pytest.fixture
def noop(app):
    @app.task
    def noop(n=None): ...

    return noop


def test_a_job_goes_to_the_queue_used_else_to_the_tasks_own_else_to_default(app, noop):
    mail = app.task(queue="mail", name="mail")(lambda: None)
    assert noop.enqueue().queue == "default"
    assert mail.enqueue().queue == "mail"
    assert mail.using(queue="fast").enqueue().queue == "fast"


def test_once_enqueue_has_returned_the_job_is_stored(noop, stored):
    handle = noop.enqueue(5)
    assert [(job.queue, job.key, job.status) for job in stored()] == [("default", handle.id, "queued")]
    assert repr(handle) == f"<Handle {handle.id} in default>"


@pytest.mark.parametrize("queue", ["", "a b", "a.fifo", "ü", "x" * 81, "a\n", "a/b", 5, b"a", ["a"]])
def test_a_bad_queue_name_is_refused(app, noop, refused, queue):
    for owner in (noop, app):
        with refused("queue must be 1 to 80 letters, digits, '_' or '-', not"):
            owner.using(queue=queue).enqueue(noop)


@pytest.mark.parametrize("queue", ["a", "x" * 80, "A-b_9"])
def test_a_good_queue_name_is_taken(noop, queue):
    assert noop.using(queue=queue).enqueue().queue == queue


def function(): ...


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda: 1, "A lambda is not a task; declare a named function with @app.task."),
        (function, "function is not a task of this app; declare it with @app.task."),
        (object(), "object is not a task of this app; declare it with @app.task."),
        (dict, "dict is not a task of this app; declare it with @app.task."),
        (None, "NoneType is not a task of this app; declare it with @app.task."),
    ],
)
def test_what_is_no_task_is_refused(app, refused, what, sentence):
    with refused(sentence):
        app.enqueue(what)


def test_a_task_of_another_app_is_refused(app, noop):
    other = Laneway(broker=MemoryBroker())
    with pytest.raises(Exception, match="Task noop belongs to another app; enqueue it there"):
        other.enqueue(noop)
    assert other.broker.inspect.stats() == []


@pytest.mark.parametrize("character", ["a", "ü", "☃", "😀", '"', "\n"])
def test_a_body_may_be_as_large_as_the_broker_takes_and_no_larger(app, noop, refused, stored, character):
    empty = len(b'{"_job_class":"noop","_job_params":{"n":""}}')
    size = len(character.encode()) + (character in '"\n')
    takes = app.broker.capabilities.max_body
    most = (takes - empty) // size
    with refused("Task noop: its body is ", f"and this broker takes {takes} at most; store the data"):
        noop.enqueue(character * (most + 1))
    noop.enqueue(character * most)
    assert len(stored()) == 1


def test_many_are_stored_in_their_order(noop, bodies, stored):
    handles = noop.enqueue_many((n,) for n in range(3))
    assert [job.key for job in stored()] == [handle.id for handle in handles]
    assert bodies() == [f'{{"_job_class":"noop","_job_params":{{"n":{n}}}}}' for n in range(3)]


def test_no_items_are_no_jobs(noop, stored):
    assert noop.enqueue_many([]) == []
    assert stored() == []


def test_an_item_has_options_of_its_own(noop, stored):
    noop.using(queue="slow", delay=60).enqueue_many([Item(n=1, perform_at=5), Item(2), (3,), Item()])
    jobs = stored()
    assert {job.queue for job in jobs} == {"slow"}
    assert jobs[0].perform_at == 5
    assert {job.status for job in jobs[1:]} == {"delayed"}
    assert [job.payloads[0].body[-8:] for job in jobs] == ['{"n":1}}', '{"n":2}}', '{"n":3}}', 's":null}']


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ((1, 2), "Item 2: Task noop: too many positional arguments. Nothing was stored."),
        (({1},), "Item 2: Task noop: the argument n would come back with list instead of set"),
        (("x" * 2_000_000,), "Item 2: Task noop: its body is "),
        (Item(m=1), "Item 2: Task noop: got an unexpected keyword argument 'm'"),
        (Item(1, perform_at=float("nan")), "Item 2: perform_at must be a finite number"),
        (Item(1, key=""), "Item 2: key must not be empty. Nothing was stored."),
        (Item(1, key=None), "Item 2: key must be text or something with a text of its own, not NoneType."),
        (Item(1, score=5), "Item 2: Task noop: only payloads of collecting tasks have a score; leave it out."),
        ([1], "Item 2: Task noop: enqueue_many takes tuples of arguments or Item(…), not list."),
        ("ab", "Item 2: Task noop: enqueue_many takes tuples of arguments or Item(…), not str."),
        (5, "Item 2: Task noop: enqueue_many takes tuples of arguments or Item(…), not int."),
    ],
    ids=range(11),
)
def test_one_bad_item_is_named_and_none_is_stored(noop, refused, bad, sentence):
    for items in ([(0,), (1,), bad, (3,)], iter([(0,), (1,), bad, (3,)])):
        with refused(sentence):
            noop.enqueue_many(items)


def test_items_that_end_in_an_error_store_nothing(noop, stored):
    def items():
        yield (1,)
        raise LookupError("the rest is gone")

    with pytest.raises(LookupError):
        noop.enqueue_many(items())
    assert stored() == []


def test_two_threads_open_one_broker(monkeypatch):
    inside = threading.Barrier(2, timeout=0.2)
    opened = []

    def slowly(*args):
        try:
            inside.wait()  # both threads are here at once, if nothing keeps the second one out
        except threading.BrokenBarrierError:
            pass
        opened.append(open_broker("memory:"))
        return opened[-1]

    monkeypatch.setattr("laneway.enqueue.pipeline.open_broker", slowly)
    app = Laneway("memory:")
    threads = [threading.Thread(target=lambda: app.broker) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [app.broker]
