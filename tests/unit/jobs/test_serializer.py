"""Serializers of an app: messages of other systems become calls or nothing, and tickets may carry more fields."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from laneway import Call, EnqueueError, Laneway, Serializer, TicketError
from laneway.brokers.sqlite import MemoryBroker
from laneway.tasks.signature import UnstorableValueError

pytestmark = pytest.mark.unit


@dataclass
class Import:
    path: str

    def run(self) -> None: ...


class S3(Serializer):
    """Notifications of S3 are read as tasks; tickets stay tickets."""

    def loads(self, body):
        found = json.loads(body)
        if "Records" not in found:
            return super().loads(body)
        if not found["Records"]:
            return None
        name = found["Records"][0]["s3"]["object"]["key"]
        return Import(name) if name.endswith(".csv") else self.registry.find("resize").call(name, width=9)


@pytest.fixture
def app():
    app = Laneway(broker=MemoryBroker(), serializer=S3)

    @app.task
    def resize(path: str, width: int): ...

    app.task(Import)
    return app


def notification(key: str) -> str:
    return json.dumps({"Records": [{"s3": {"object": {"key": key}}}]})


def test_a_foreign_body_becomes_a_call(app):
    call = app.serializer.loads(notification("a.png"))
    assert isinstance(call, Call)
    assert (call.task.name, call.params) == ("resize", {"path": "a.png", "width": 9})


def test_a_foreign_body_becomes_an_instance(app):
    assert app.serializer.loads(notification("a.csv")) == Import("a.csv")


def test_a_foreign_body_becomes_nothing(app):
    assert app.serializer.loads('{"Records":[]}') is None


def test_its_own_tickets_are_still_read(app, bodies):
    app.registry.find("resize").enqueue("b.png", 5)
    assert app.serializer.loads(bodies()[0]).params == {"path": "b.png", "width": 5}


def test_a_body_is_stored_as_it_is(app, stored):
    handle = app.enqueue_body(notification("a.png"), queue="uploads")
    [job] = stored()
    assert (job.queue, job.key, job.payloads[0].body) == ("uploads", handle.id, notification("a.png"))


def test_a_ticket_that_says_when_is_stored_for_then(app, stored):
    app.enqueue_body('{"_job_class":"resize","_job_params":null,"_execute_after":4000000000.5}')
    app.enqueue_body('{"Records":[],"_execute_after":4000000000}')  # no ticket: what it says is its serializer's
    delayed, queued = stored()
    assert (delayed.status, delayed.perform_at, queued.status) == ("delayed", 4_000_000_001, "queued")


def test_a_body_without_a_queue_goes_to_the_default_one(app, stored):
    app.enqueue_body("{}", queue=None)
    assert [job.queue for job in stored()] == ["default"]


@pytest.mark.parametrize(
    ("body", "queue", "sentence"),
    [
        (b"bytes", "default", "The body must be text, not bytes"),
        ("\udfff", "default", "The body holds half of a surrogate pair"),
        ("x" * 1_048_577, "default", "The body is 1048577 bytes, and this broker takes 1048576 at most"),
        ("{}", "no such name", "queue must be 1 to 80 letters"),
        ("{}", 5, "queue must be 1 to 80 letters"),
        ('{"_job_class":"resize","_execute_after":1900000000000}', "default", "milliseconds"),
    ],
    ids=range(6),
)
def test_a_body_that_cannot_be_stored_is_refused(app, refused, body, queue, sentence):
    with refused(sentence):
        app.enqueue_body(body, queue=queue)


def app_that_writes(written):
    class Own(Serializer):
        def dumps(self, task, params):
            return written(super().dumps(task, params))

    app = Laneway(broker=MemoryBroker(), serializer=Own)

    @app.task
    def resize(path: str): ...

    return app, resize


def test_what_is_written_may_carry_more_and_is_read_all_the_same():
    app, resize = app_that_writes(lambda body: json.dumps({**json.loads(body), "tenant": 7}))
    handle = resize.enqueue("a.png")
    [job] = app.broker.inspect.find("default", handle.id)
    body = job.payloads[0].body
    assert json.loads(body)["tenant"] == 7
    assert app.serializer.loads(body).params == {"path": "a.png"}


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (str.encode, "Task resize: its body must be text, not bytes."),
        (lambda body: None, "Task resize: its body must be text, not NoneType."),
        (lambda body: body + "\ud800", "Task resize: its body holds half of a surrogate pair"),
        (lambda body: body + " " * 1_048_576, "Task resize: its body is "),
    ],
)
def test_what_is_written_wrongly_is_refused(written, sentence):
    app, resize = app_that_writes(written)
    with pytest.raises(EnqueueError, match=sentence):
        resize.enqueue("a.png")
    assert app.broker.inspect.stats() == []


def test_a_serializer_may_refuse():
    def no(body):
        raise UnstorableValueError("not on a Sunday")

    app, resize = app_that_writes(no)
    with pytest.raises(EnqueueError, match=r"^Task resize: not on a Sunday\.$"):
        resize.enqueue("a.png")
    assert app.broker.inspect.stats() == []


def test_a_serializer_may_only_read():
    class Reading:
        def loads(self, body): ...

    assert Laneway(broker=MemoryBroker(), serializer=lambda registry: Reading()).serializer.loads("{}") is None


def test_a_function_of_the_registry_may_make_the_serializer():
    made = []
    app = Laneway(broker=MemoryBroker(), serializer=lambda registry: made.append(registry) or Serializer(registry))
    assert made == [app.registry]
    with pytest.raises(TicketError):
        app.serializer.loads("?")
