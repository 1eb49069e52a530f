"""Class tasks: how an instance is stored, and that a worker rebuilds and runs an equal one."""

from __future__ import annotations

import asyncio
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from laneway import Context, DeclarationError, EnqueueError

pytestmark = pytest.mark.unit

WHEN = datetime(2024, 1, 1, tzinfo=UTC)


class Told:
    """What the runs below say of themselves."""

    log: ClassVar[list[Any]] = []


@pytest.fixture(autouse=True)
def log():
    Told.log.clear()
    return Told.log


@dataclass
class Data:
    to: str
    at: datetime | None = None
    made: int = field(default=0, init=False)
    limit: ClassVar[int] = 5

    def run(self) -> None:
        Told.log.append((type(self), self.to, self.at))


class Packed(msgspec.Struct):
    to: str
    at: datetime | None = None

    def run(self, context: Context) -> None:
        Told.log.append((type(self), self.to, self.at))


class Model(pydantic.BaseModel):
    to: str = pydantic.Field(alias="To")
    at: datetime | None = None

    def run(self) -> None:
        Told.log.append((type(self), self.to, self.at))


@attrs.define
class Classy:
    _to: str
    at: datetime | None = None

    def run(self) -> None:
        Told.log.append((type(self), self._to, self.at))


class Tuple(NamedTuple):
    to: str
    at: datetime | None = None

    def run(self) -> None:
        Told.log.append((type(self), self.to, self.at))


class Dict:
    def __init__(self, to: str, at: datetime) -> None:
        self.recipient, self.when = to, at

    def to_dict(self) -> dict[str, Any]:
        return {"to": self.recipient, "at": self.when.isoformat()}

    def run(self) -> None:
        Told.log.append((type(self), self.recipient, self.when))


class Natural(Dict):
    def to_dict(self) -> dict[str, Any]:
        return {"to": self.recipient, "at": self.when}


def run_stored(app, body):
    call = app.serializer.loads(body)
    return call.task.invoke(call.params, "the context")


@pytest.mark.parametrize(
    ("instance", "params"),
    [
        (Data("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
        (Packed("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
        (Model(To="a", at=WHEN), '{"To":"a","at":"2024-01-01T00:00:00Z"}'),
        (Classy("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
        (Tuple("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
        (Dict("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
        (Natural("a", WHEN), '{"at":"2024-01-01T00:00:00Z","to":"a"}'),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instance_is_stored_by_its_fields_and_rebuilt(app, bodies, log, instance, params):
    kind = app.task(type(instance))
    app.enqueue(instance)
    assert bodies() == [f'{{"_job_class":"{kind.__name__}","_job_params":{params}}}']
    run_stored(app, bodies()[0])
    assert log == [(kind, "a", WHEN)]


class Nothing:
    def run(self) -> None:
        Told.log.append("ran")


class Optional:
    def __init__(self, day: str = "monday") -> None:
        self.day = day

    def run(self) -> None:
        Told.log.append(self.day)


@pytest.mark.parametrize(("instance", "told"), [(Nothing(), "ran"), (Optional(), "monday")], ids=["none", "optional"])
def test_a_class_whose_constructor_needs_nothing_has_no_params(app, bodies, log, instance, told):
    app.task(type(instance))
    app.enqueue(instance)
    assert '"_job_params":null}' in bodies()[0]
    run_stored(app, bodies()[0])
    assert log == [told]


class Needy:
    def __init__(self, to: str) -> None:
        self.to = to

    def run(self) -> None: ...


@dataclass
class WithInitVar:
    to: InitVar[str]

    def run(self) -> None: ...


class BadDict(Nothing):
    def to_dict(self) -> Any:
        return [1]


class OtherDict(Nothing):
    def to_dict(self) -> Any:
        return {"colour": "red"}


class SetDict(Needy):
    def to_dict(self) -> Any:
        return {"to": {1}}


class SubclassOfATask(Data): ...


@pytest.mark.parametrize(
    ("instance", "sentence"),
    [
        (Needy("a"), "Task Needy: an instance cannot be rebuilt, because its class has neither fields nor to_dict()"),
        (Optional("friday"), "Task Optional: an instance cannot be rebuilt"),
        (WithInitVar("a"), "Task WithInitVar: missing a required argument: 'to'"),
        (BadDict(), "Task BadDict: its to_dict() must return a dict, not list"),
        (OtherDict(), "Task OtherDict: got an unexpected keyword argument 'colour'"),
        (SetDict("a"), "Task SetDict: Expected `str`, got `array`"),
        (Data({1}), "Task Data: Expected `str`, got `array` - at `$.to`"),  # type: ignore[arg-type]  # wrong on purpose
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instance_that_cannot_be_rebuilt_is_refused(app, refused, instance, sentence):
    app.task(type(instance))
    with refused(sentence):
        app.enqueue(instance)


def test_a_subclass_of_a_task_is_not_a_task(app, refused):
    app.task(Data)
    with refused("SubclassOfATask is not a task of this app; declare it with @app.task."):
        app.enqueue(SubclassOfATask("a"))


def test_the_class_itself_is_not_enqueued(app, refused):
    app.task(Data)
    with refused("Task Data: enqueue an instance, such as Data(…), not the class."):
        app.enqueue(Data)


def test_an_instance_is_given_alone(app, refused):
    app.task(Data)
    with refused("Task Data: an instance carries its own arguments; give it alone."):
        app.outgoing(Data("a"), ("b",), {})


class Contexts:
    """Ways to write run(), each with what it is to be handed."""

    class Without:
        def run(self): ...

    class With:
        def run(self, context): ...

    class AnyName:
        def run(self, c): ...

    class WithDefault:
        def run(self, context=None): ...

    class OtherDefault:
        def run(self, dry=False): ...

    class Rest:
        def run(self, *rest, **more): ...

    class Static:
        @staticmethod
        def run(context): ...

    class OfTheClass:
        @classmethod
        def run(cls): ...


@pytest.mark.parametrize("kind", ["With", "AnyName", "WithDefault", "Static"])
def test_run_gets_the_context_when_it_takes_one(app, kind):
    app.task(getattr(Contexts, kind))
    assert app.registry.find(kind).takes_context


@pytest.mark.parametrize("kind", ["Without", "OtherDefault", "Rest", "OfTheClass"])
def test_run_does_not_get_the_context_when_it_takes_none(app, kind):
    app.task(getattr(Contexts, kind))
    assert not app.registry.find(kind).takes_context
    app.registry.find(kind).invoke({}, "the context")


def test_run_may_be_async(app, log):
    @app.task
    class Later(Nothing):
        async def run(self, context):
            log.append(context)

    task = app.registry.find("Later")
    assert task.is_async
    asyncio.run(task.invoke({}, "the context"))
    assert log == ["the context"]


def test_many_instances_are_stored_or_none(app, refused, stored):
    app.task(Data)
    with refused("Item 1: Task Data: ", "Nothing was stored."):
        app.enqueue_many([Data("a"), Data(object()), Data("c")])  # type: ignore[arg-type]  # wrong on purpose
    with refused("Item 2: object is not a task of this app"):
        app.using(delay=5).enqueue_many(iter([Data("a"), Data("b"), object()]))  # type: ignore[list-item]  # as above
    handles = app.using(queue="mail", delay=60).enqueue_many([Data("a"), Data("b")])
    assert [(job.queue, job.key) for job in stored()] == [("mail", handle.id) for handle in handles]
    assert {handle.status() for handle in handles} == {"delayed"}


def test_a_method_cannot_be_a_task(app):
    with pytest.raises(DeclarationError, match="a method cannot be a task"):

        class Shop:
            @app.task
            def resize(self, path: str) -> None: ...


def test_an_init_var_that_is_not_kept_is_refused(app, refused):
    @app.task
    @dataclass
    class Scaled:
        size: int
        factor: InitVar[int] = 3

        def run(self) -> None: ...

    with refused("Task Scaled: an instance does not keep its InitVar factor"):
        app.enqueue(Scaled(1, 9))


def test_an_optional_argument_kept_under_a_private_name_is_not_lost_silently(app, refused):
    @app.task
    class Counted:
        def __init__(self, number: int = 5) -> None:
            self._number = number

        def run(self) -> None: ...

    app.enqueue(Counted())
    with pytest.raises(EnqueueError, match="cannot be rebuilt"):
        app.enqueue(Counted(9))
