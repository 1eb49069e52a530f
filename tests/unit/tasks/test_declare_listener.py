"""Declaring listeners: allowed handlers, names, options, and the queue that no other task may share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel

from laneway import Context, DeclarationError, EnqueueError, Laneway, Listener, TicketError
from laneway.brokers.aws.admin.needs import needs_of
from laneway.brokers.sqlite import MemoryBroker
from laneway.cli.listing import JobReader
from laneway.events.event import Subscription, copy_key
from laneway.jobs.data import Claim, JobView, Kind, Payload

if TYPE_CHECKING:
    from decimal import Decimal as Unseen

pytestmark = pytest.mark.unit

QUEUE = "destapp-eventboss-srcapp-transaction_change-staging"
TOPIC = "eventboss-srcapp-transaction_change-staging"


@dataclass
class Order:
    id: str
    cents: int = 0


class Shape(msgspec.Struct):
    id: str


class Model(BaseModel):
    id: str


class Opaque:
    def __init__(self, id: str) -> None: ...


@pytest.fixture
def app() -> Iterator[Laneway]:
    app = Laneway(broker=MemoryBroker(), name="destapp", env="staging")
    yield app
    app.close()


def claim_of(listener: Listener[Any]) -> Claim:
    return Claim(listener.queue, 1, "17@" + listener.queue, 1, 0.0, -1, 1, 0, [Payload("1")])


def test_a_declaration_has_the_names_of_the_originals(app):
    @app.listener("transaction_change", source="srcapp")
    def on_change(value: Any) -> None:
        """What it does."""

    assert isinstance(on_change, Listener)
    assert (on_change.name, on_change.queue, on_change.topic) == ("on_change", QUEUE, TOPIC)
    assert (on_change.event, on_change.source, on_change.destination) == ("transaction_change", "srcapp", "destapp")
    assert on_change.subscription == Subscription(TOPIC, QUEUE)
    assert (on_change.kind, on_change.filter, on_change.isolation) == (Kind.PLAIN, None, None)
    assert (on_change.is_async, on_change.takes_context) == (False, False)
    assert on_change.options.queue == QUEUE
    assert on_change.options.retries(Kind.PLAIN) == 25
    assert on_change.__doc__ == "What it does."
    assert repr(on_change) == "<Listener on_change>"


def test_without_a_source_it_is_generic(app):
    listener = app.listener("login", name="on_login")(lambda value: None)
    assert (listener.source, listener.topic) == (None, "eventboss-login-staging")
    assert listener.queue == "destapp-eventboss-login-staging"


def test_options_are_kept(app):
    def own(value: Any) -> Any:
        return value

    wanted = {"country": ["DE", {"prefix": "A"}]}
    listener = app.listener(
        "login",
        destination="other",
        name="any name",
        filter=wanted,
        max_retry_count=3,
        retry_in=own,
        bury_on=[ValueError],
        retries_exhausted=own,
        time_limit=timedelta(minutes=1),
        isolation="fresh",
    )(own)
    options = listener.options
    assert (listener.name, listener.queue) == ("any name", "other-eventboss-login-staging")
    assert (options.retries(Kind.PLAIN), options.bury_on, options.limit_s) == (3, (ValueError,), 60.0)
    assert [options.retry_in, options.retries_exhausted] == [own, own]
    assert listener.isolation == "fresh"
    wanted["country"].append("FR")
    assert listener.filter == listener.subscription.filter == {"country": ["DE", {"prefix": "A"}]}


def test_a_plain_call_just_runs_it(app):
    @app.listener("sync")
    def sync(value: int) -> int:
        return value + 1

    @app.listener("later", context=True)
    async def later(context: Context, value: int) -> tuple[str, int]:
        return context.task, value

    context = Context(app, claim_of(later), later)
    assert sync(1) == sync(value=1) == 2
    assert asyncio.run(later(context, 1)) == ("later", 1)
    assert sync.invoke({"value": 1}, context) == 2
    assert asyncio.run(later.invoke({"value": 1}, context)) == ("later", 1)
    assert (later.is_async, later.takes_context) == (True, True)


def test_it_is_one_of_the_apps_tasks(app):
    plain = app.task(name="plain")(lambda: None)
    listener = app.listener("login", name="on_login")(lambda value: None)
    assert list(app.registry) == [plain, listener]
    assert app.listeners() == [listener]
    assert app.queues() == ["default", listener.queue]
    assert app.registry.listener_of(listener.queue) is listener
    assert app.registry.listener_of("default") is None
    assert app.registry.collector_of(listener.queue) is None


def test_a_ticket_does_not_run_it(app):
    app.listener("login", name="on_login")(lambda value: None)
    with pytest.raises(TicketError, match="'on_login' is a listener, and is not run by tickets; delete the job"):
        app.serializer.loads('{"_job_class":"on_login","_job_params":null}')


def test_it_cannot_be_enqueued(app):
    listener = app.listener("login", name="on_login")(lambda value: None)
    assert not hasattr(listener, "enqueue")
    context = Context(app, claim_of(listener), listener)
    with pytest.raises(EnqueueError, match="on_login is a listener; publish its event, or send it a value with"):
        context.enqueue(listener, 5)


# -- what its value becomes ----------------------------------------------------------------------------


def takes_order(value: Order) -> None: ...
def takes_shape(value: Shape) -> None: ...
def takes_model(value: Model) -> None: ...
def takes_dict(value: dict[str, int]) -> None: ...
def takes_text(value: str) -> None: ...
def takes_any(value: Any) -> None: ...
def takes_object(value: object) -> None: ...
def takes_whatever(value): ...
def takes_optional(value: Order | None) -> None: ...
def takes_orders(value: list[Order]) -> None: ...
def takes_more(*values): ...
def takes_with_default(value: str, more: int = 5) -> None: ...
def takes_by_position(value: Annotated[int, msgspec.Meta(ge=0)], /) -> None: ...


@pytest.mark.parametrize(
    ("target", "body", "value"),
    [
        (takes_order, '{"id":"a","cents":5}', Order("a", 5)),
        (takes_order, ' { "cents" : 5, "id" : "a" } ', Order("a", 5)),
        (takes_shape, '{"id":"a"}', Shape("a")),
        (takes_model, '{"id":"a"}', Model(id="a")),
        (takes_dict, '{"a":5}', {"a": 5}),
        (takes_text, '"a"', "a"),
        (takes_any, '{"a":[1,null]}', {"a": [1, None]}),
        (takes_object, "5", 5),
        (takes_whatever, "null", None),
        (takes_optional, "null", None),
        (takes_orders, '[{"id":"a"}]', [Order("a")]),
        (takes_more, "[1]", [1]),
        (takes_with_default, '"a"', "a"),
        (takes_by_position, "5", 5),
    ],
)
def test_the_annotation_decodes_the_value(app, target, body, value):
    assert app.listener("login")(target).load(body) == value


@pytest.mark.parametrize(
    ("target", "body", "sentence"),
    [
        (takes_order, '{"cents":5}', "Object missing required field `id`"),
        (takes_order, '"a"', "Expected `object`, got `str`"),
        (takes_model, '{"id":5}', "ValidationError was raised by its type"),
        (takes_by_position, "-1", "Expected `int` >= 0"),
        (takes_any, "hello", "JSON is malformed"),
        (takes_any, "NaN", "JSON is malformed"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_of_the_listener(app, target, body, sentence):
    listener = app.listener("login")(target)
    with pytest.raises(TicketError) as caught:
        listener.load(body)
    assert caught.value.task is listener
    assert str(caught.value).startswith(f"The value does not fit the listener {target.__name__}: ")
    assert sentence in str(caught.value)


# -- what cannot be ------------------------------------------------------------------------------------


def refused(declare, *sentence: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare()
    text = str(caught.value)
    for part in sentence:
        assert part in text
    assert text.endswith(".")
    assert "\n" not in text


def no_value() -> None: ...
def two_values(one: int, two: int) -> None: ...
def by_name(*, value: int) -> None: ...
def opaque(value: Opaque) -> None: ...
def unseen(value: Unseen) -> None: ...
def yields(value: int) -> Iterator[int]:
    yield value


async def yields_async(value: int) -> Any:
    yield value


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (Order, "A listener is a function of an event's value, not the class Order."),
        (5, "A listener is a function of an event's value, not int."),
        (
            no_value,
            "Listener no_value: a listener is handed an event's value and nothing else; declare it as def no_value",
        ),
        (two_values, "declare it as def two_values(value)"),
        (by_name, "declare it as def by_name(value)"),
        (opaque, "Listener opaque: Opaque, the type of value, cannot be read from JSON; annotate it with dict"),
        (unseen, "Listener unseen: the annotation Unseen of value cannot be evaluated"),
        (yields, "Listener yields: a generator does nothing when it is called; a listener must not yield"),
        (yields_async, "a listener must not yield"),
        (lambda value: None, "A lambda has no name to be found by; give it one with name=…"),
    ],
)
def test_what_cannot_be_a_listener(app, target, sentence):
    refused(lambda: app.listener("login")(target), sentence)
    assert len(app.registry) == 0


def test_with_the_context_it_takes_two(app):
    refused(lambda: app.listener("login", context=True)(takes_any), "declare it as def takes_any(context, value).")


def test_a_method_cannot_be_one(app):
    def declare() -> None:
        class Handlers:
            @app.listener("login")
            def on_login(self, value: int) -> None: ...

    refused(declare, "Listener on_login: a method cannot be a listener", "declare a function.")


def test_it_is_declared_once(app):
    listener = app.listener("login")(takes_any)
    refused(lambda: app.listener("logout")(listener), "takes_any is a listener already; declare it once.")
    refused(lambda: app.task(listener), "takes_any is a listener already; declare it once.")
    refused(lambda: app.listener("logout")(app.task(name="t")(lambda: None)), "t is a task already; declare it once.")


def test_the_event_must_be_named(app):
    refused(lambda: app.listener(takes_any), "A listener needs the name of its event", "@app.listener('order_placed'")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"source": "a b"}, "Listener takes_any: source must be 1 to 80 letters, digits, '_' or '-', not 'a b'."),
        ({"source": ""}, "source must be 1 to 80 letters"),
        ({"destination": "a.b"}, "destination must be 1 to 80 letters"),
        ({"filter": {"a": "x"}}, "Listener takes_any: its filter must have a list of conditions for a"),
        ({"max_retry_count": -1}, "Listener takes_any: max_retry_count must be a whole number"),
        ({"isolation": "thread"}, "Listener takes_any: isolation must be"),
        ({"bury_on": ValueError}, "bury_on must be a list"),
        ({"name": ""}, "A listener's name must be 1 to 200 printable characters"),
    ],
)
def test_options_that_cannot_be(app, options, sentence):
    refused(lambda: app.listener("login", **options)(takes_any), sentence)
    assert len(app.registry) == 0


@pytest.mark.parametrize("event", ["", "a b", "a.b", 5, None, "x" * 81])
def test_events_that_cannot_be(app, event):
    refused(lambda: app.listener(event)(takes_any), "Listener takes_any: event must be 1 to 80 letters")


def test_a_queue_whose_dead_letters_would_have_too_long_a_name(app):
    longest = 69 - len("destapp-eventboss--staging")
    assert len(app.listener("x" * longest)(takes_any).queue) == 69
    refused(
        lambda: app.listener("x" * (longest + 1), name="other")(takes_any),
        "Listener other: the queue destapp-eventboss-xxx",
        "has 70 characters, and 69 are the most, because its dead letters are in one that ends with -deadletter;",
    )


def test_an_app_without_a_name():
    app = Laneway("memory:")
    for destination in (None, "shop"):
        refused(
            lambda destination=destination: app.listener("login", destination=destination)(takes_any),
            "Listener takes_any: listening needs the app's name, which stands in the names of its queues; give it as "
            "Laneway(name=…).",
        )
    assert app.listeners() == []


# -- its queue is its alone ----------------------------------------------------------------------------


def test_two_listeners_on_one_queue(app):
    app.listener("login", name="one")(takes_any)
    refused(
        lambda: app.listener("login", name="other")(takes_any),
        "Listener other: the queue destapp-eventboss-login-staging is that of the listener one already",
        "give one another destination=….",
    )
    assert app.listener("login", name="third", destination="elsewhere")(takes_any) in app.listeners()
    assert len(app.listeners()) == 2


def test_two_of_one_name(app):
    app.listener("login", name="one")(takes_any)
    refused(
        lambda: app.listener("logout", name="one")(takes_any), "Two tasks are named 'one'; give one of them another"
    )
    refused(lambda: app.task(name="one")(lambda: None), "Two tasks are named 'one'")


def test_a_task_on_a_listeners_queue(app):
    queue = app.listener("login", name="on_login")(takes_any).queue
    refused(
        lambda: app.task(name="t", queue=queue)(lambda: None),
        f"Task t: the queue {queue} belongs to the listener on_login alone; give the task another with queue=….",
    )
    refused(
        lambda: app.collect(name="c", queue=queue)(lambda batch: None), f"the queue {queue} is that of on_login too"
    )
    assert len(app.registry) == 1


@pytest.mark.parametrize("kind", ["task", "collect"])
def test_a_listener_on_a_tasks_queue(app, kind):
    queue = "destapp-eventboss-login-staging"
    getattr(app, kind)(name="t", queue=queue)(lambda *batch: None) if kind == "collect" else app.task(
        name="t", queue=queue
    )(lambda: None)
    refused(
        lambda: app.listener("login")(takes_any),
        f"Listener takes_any: a listener has its queue alone, and the queue {queue} is that of t too; give that one",
    )


def test_nothing_is_sent_there_by_name(app):
    queue = app.listener("login", name="on_login")(takes_any).queue

    for send in (
        lambda: app.task(name="t")(lambda: None).using(queue=queue).enqueue(),
        lambda: app.task(name="u")(lambda: None).using(key="a", queue=queue).enqueue(),
        lambda: app.enqueue_body("{}", queue=queue),
    ):
        with pytest.raises(EnqueueError) as caught:
            send()
        assert f"cannot go to the queue {queue}, which belongs to the listener on_login alone" in str(caught.value)
        assert str(caught.value).endswith("or send a value with app.sender(…).")
    assert app.broker.inspect.stats() == []


def test_sqs_is_asked_when_it_is_declared():
    app = Laneway("sqs://default", name="shop")
    refused(
        lambda: app.listener("login", time_limit=timedelta(hours=13))(takes_any),
        "Task takes_any: SQS leaves a job to its worker for 12 hours at most",
    )
    assert app.listener("login")(takes_any).queue == "shop-eventboss-login"


def test_the_command_line_tells_whose_jobs_they_are(app):
    listener = app.listener("login", name="on_login")(takes_any)
    for body in ("5", '{"_job_class":"other"}', "no JSON"):
        job = JobView(
            queue=listener.queue,
            key="a",
            status="queued",
            shard=0,
            payloads=[Payload(body)],
            perform_at=0.0,
            retry_count=-1,
            attempt=0,
        )
        [seen] = JobReader(app).read([job])
        assert seen.task == "on_login"
        job.queue = "default"
        [seen] = JobReader(app).read([job])
        assert seen.task == ("other" if "other" in body else None)
        job.key = copy_key("7", "default")
        [seen] = JobReader(app).read([job])
        assert seen.task is None, "the value of an event, whose listener is not here"


def test_aws_needs_a_standard_queue_for_it(app):
    listener = app.listener("login", name="on_login", max_retry_count=3)(takes_any)
    need = needs_of(app)[listener.queue]
    assert (need.plain, need.keyed, need.runs) == (["on_login"], [], {False: 4})
