"""`complete`: a broker that does not keep the contract is refused when it is given or opened, in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from laneway import Laneway
from laneway.broker import (
    FEATURES,
    TIERS,
    AbsentTier,
    Broker,
    Capabilities,
    CoreBroker,
    Feature,
    SettleBatch,
    ShardsTier,
    complete,
)
from laneway.brokers.sqlite import MemoryBroker
from laneway.errors import BrokerRefusedError, ConfigError
from laneway.jobs.data import NewJob
from laneway.testing.conformance.fixtures import put
from laneway.testing.faulty_broker import FaultyBroker
from laneway.urls import Url, open_broker
from tests.support.second_broker import SecondBroker

pytestmark = pytest.mark.unit

VERBS = [verb for verb in vars(CoreBroker) if not verb.startswith("_")]
WHERE = ". docs/writing-a-broker.md describes the contract."
WHY = "Pigeons cannot be counted; look into the loft."
NO_BROKER = (
    "no broker: it has no capabilities. A broker has them as an attribute, a laneway.broker.Capabilities; "
    "RedisBroker.of(…) makes a broker of a client"
)


class Pigeons:
    """A third-party broker: the parts that a test has given it."""


def pigeons(*without: str, lacks: dict[Feature, str] | None = None, **parts: Any) -> Any:
    """A broker that is complete but for the parts in `without`; `parts` are added, or replaced."""
    store, broker = MemoryBroker(), Pigeons()
    broker.__dict__.update({name: getattr(store, name) for name in (*VERBS, *TIERS) if name not in without})
    if "capabilities" not in without:
        broker.__dict__["capabilities"] = Capabilities(shared=False, lacks=lacks or {})
    broker.__dict__.update(parts)
    return broker


def tier_without(tier: str, *without: str, **parts: Any) -> Any:
    """A tier that is complete but for some verbs."""
    whole = getattr(MemoryBroker(), tier)
    names = [name for name in dir(whole) if not name.startswith("_") and name not in without]
    return SimpleNamespace(**{name: getattr(whole, name) for name in names}, **parts)


def nothing(*args: object) -> None: ...


async def async_turn(turn: object) -> None: ...


class SlottedPigeons(MemoryBroker):
    """A broker whose tier cannot be replaced."""

    capabilities = Capabilities(shared=False, lacks={"shards": WHY})

    @property
    def shards(self) -> AbsentTier:  # type: ignore[override]
        return AbsentTier(WHY)

    @shards.setter
    def shards(self, tier: object) -> None:
        if isinstance(tier, AbsentTier):
            raise AttributeError("shards")


class Derived(CoreBroker):
    """A broker made from the protocol, with a misspelled verb. What it inherits does nothing."""

    def __init__(self) -> None:
        store = MemoryBroker()
        self.capabilities = Capabilities(shared=False, lacks=dict.fromkeys(TIERS, WHY))
        self.__dict__.update({name: getattr(store, name) for name in VERBS if name != "enqueue"})

    def enque(self, jobs: Sequence[NewJob]) -> None: ...


class DerivedShards(ShardsTier):
    """The same of a tier."""

    def reshards(self) -> None: ...


class DerivedWhole(Broker):
    """A broker made from the protocol, without tiers."""

    def __init__(self) -> None:
        store = MemoryBroker()
        self.capabilities = Capabilities(shared=False)
        self.__dict__.update({name: getattr(store, name) for name in VERBS})


# -- what is complete ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MemoryBroker, SecondBroker, pigeons])
def test_a_complete_broker_is_taken_as_it_is(make: Any) -> None:
    broker = make()
    tiers = [getattr(broker, tier) for tier in TIERS]
    assert complete(broker) is broker
    assert [getattr(broker, tier) for tier in TIERS] == tiers
    assert Laneway(broker=broker).broker is broker


def test_parts_of_a_tier_may_be_lacked_with_the_tier_there() -> None:
    parts: list[Feature] = [feature for feature in FEATURES if feature not in TIERS]
    assert parts
    broker = complete(pigeons(lacks=dict.fromkeys(parts, WHY)))
    assert [broker.capabilities.has(part) for part in parts] == [False] * len(parts)
    assert broker.capabilities.has("inspect")


# -- what is missing or misspelled ---------------------------------------------------------------------


def as_attributes() -> Any:
    """As brokers said it once: attributes of their own."""
    return pigeons("capabilities", shared=True, max_body=1_000)


INCOMPLETE = [
    pytest.param(
        pigeons("capabilities"),
        f"Pigeons is {NO_BROKER}",
        id="no capabilities",
    ),
    pytest.param(
        as_attributes(),
        f"Pigeons is {NO_BROKER}",
        id="attributes",
    ),
    pytest.param(
        pigeons(capabilities={"shared": True}),
        f"Pigeons is {NO_BROKER}",
        id="capabilities of another kind",
    ),
    pytest.param(pigeons("reclaim"), "Pigeons has no reclaim()", id="no verb"),
    pytest.param(
        pigeons("reclaim", reclame=nothing), "Pigeons has no reclaim() (did you mean reclame?)", id="verb misspelled"
    ),
    pytest.param(pigeons(reclaim=5), "Pigeons has no reclaim()", id="no function"),
    pytest.param(pigeons("reclaim", _reclaim=nothing), "Pigeons has no reclaim()", id="private"),
    pytest.param(
        pigeons(wait=lambda queues: set[str]()),
        "Pigeons.wait() cannot be called with the arguments (queues, timeout_s): too many positional arguments",
        id="an argument missing",
    ),
    pytest.param(
        pigeons(reschedule=lambda queue, key, identity=None, *, delay=0.0, perform_at=None: False),
        "Pigeons.reschedule() cannot be called with the arguments (queue, key, identity, delay_s=…, perform_at=…): "
        "got an unexpected keyword argument 'delay_s'",
        id="a named argument misspelled",
    ),
    pytest.param(
        pigeons(status=lambda queue, key, ident=None: "gone"),
        "Pigeons.status() cannot be called with the arguments (queue=…, key=…, identity=…): "
        "got an unexpected keyword argument 'identity'",
        id="an argument misspelled",
    ),
    pytest.param(
        pigeons(leave=lambda worker, died: 0),
        "Pigeons.leave() cannot be called with the arguments (worker): missing a required argument: 'died'",
        id="an optional argument required",
    ),
    pytest.param(
        pigeons(events=tier_without("events", "subscriptions", subscriptions=lambda topic: [])),
        "Pigeons.events.subscriptions() cannot be called with the arguments (): missing a required argument: 'topic'",
        id="an optional argument of a tier required",
    ),
    pytest.param(Derived(), "Derived has no enqueue() (did you mean enque?)", id="a verb inherited from the protocol"),
    pytest.param(
        pigeons(shards=DerivedShards()),
        "Pigeons.shards has no reshard() (did you mean reshards?)",
        id="a verb inherited from the protocol of a tier",
    ),
    pytest.param(
        DerivedWhole(),
        "DerivedWhole has no tier inspect; give it one, or name it in capabilities.lacks",
        id="a tier inherited",
    ),
    pytest.param(MemoryBroker, "MemoryBroker is a class; make an object of it", id="a class"),
    pytest.param(
        pigeons(capabilites=Capabilities(shared=False), capabilities=None),
        f"Pigeons is {NO_BROKER}".replace("no capabilities", "no capabilities (did you mean capabilites?)"),
        id="capabilities misspelled",
    ),
    pytest.param(
        pigeons(inspect=nothing),
        "Pigeons.inspect is a function; it must be an object with the verbs",
        id="a function as a tier",
    ),
    pytest.param(pigeons(turn=async_turn), "Pigeons.turn() is async, and a broker's verbs are not", id="async"),
    pytest.param(pigeons(events=Pigeons), "Pigeons.events is a class; make an object of it", id="a class as a tier"),
    pytest.param(
        SlottedPigeons(), "SlottedPigeons has no attribute shards that can be set; let it have one", id="slots"
    ),
    pytest.param(
        pigeons(lacks={"shards": WHY}),
        "Pigeons has the tier shards, and its capabilities lack it; remove one of the two",
        id="tier present and lacked",
    ),
    *(
        pytest.param(
            pigeons(tier),
            f"Pigeons has no tier {tier}; give it one, or name it in capabilities.lacks",
            id=f"no tier {tier}",
        )
        for tier in TIERS
    ),
    pytest.param(
        pigeons("inspect", inspects=MemoryBroker().inspect),
        "Pigeons has no tier inspect (did you mean inspects?); give it one, or name it in capabilities.lacks",
        id="tier misspelled",
    ),
    *(
        pytest.param(
            pigeons(**{tier: tier_without(tier, verb)}),
            f"Pigeons.{tier} has no {verb}()",
            id=f"no {tier}.{verb}",
        )
        for tier, verb in (
            ("operate", "empty_morgue"),
            ("events", "subscriptions"),
            ("shards", "reshard"),
            ("health", "duties"),
        )
    ),
    pytest.param(
        pigeons(operate=tier_without("operate", "revive", revife=nothing)),
        "Pigeons.operate has no revive() (did you mean revife?)",
        id="verb of a tier misspelled",
    ),
    pytest.param(
        pigeons(health=tier_without("health", "auto_create")),
        "Pigeons.health has no auto_create",
        id="no auto_create",
    ),
]


@pytest.mark.parametrize(("broker", "sentence"), INCOMPLETE)
def test_an_incomplete_broker_is_refused(broker: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        complete(broker)
    assert str(caught.value) == sentence + WHERE


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({name: "no"}, f"{name} is True or False, not 'no'.") for name in ("shared", "remote", "makes_queues")),
    *(({name: 1}, f"{name} is True or False, not 1.") for name in ("holders_keep", "relays", "derives_ids")),
    ({"max_body": "1M"}, "max_body is a number of bytes from 1, not '1M'."),
    ({"max_body": -1}, "max_body is a number of bytes from 1, not -1."),
    ({"settle_batch": (10, 0.1)}, "settle_batch is a SettleBatch, not (10, 0.1)."),
    ({"ahead_s": "x"}, "ahead_s is a number of seconds from 0, not 'x'."),
    ({"weight": 0}, "weight is a number of jobs from 1, or None, not 0."),
    ({"refusal": "no"}, "refusal is a function, or None, not 'no'."),
    ({"lacks": {"shards"}}, "lacks is a mapping to sentences, not {'shards'}."),
    *(({"lacks": {"shards": reason}}, "lacks has no sentence for 'shards'.") for reason in ("", " ", 5)),
    ({"lacks": {"teleport": WHY}}, "lacks has 'teleport', which is no feature."),
    ({"lacks": {"shard": WHY}}, "lacks has 'shard', which is no feature (did you mean shards?)."),
    ({"lacks": {3: WHY}}, "lacks has 3, which is no feature."),
    ({"conditions": [WHY]}, f"conditions is a mapping to sentences, not [{WHY!r}]."),
]


@pytest.mark.parametrize(("fields", "problem"), WRONG)
def test_wrong_capabilities_are_refused_when_they_are_made(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Capabilities(**{"shared": False, **fields})
    assert str(caught.value) == f"Capabilities: {problem}"


@pytest.mark.parametrize(("count", "seconds"), [(0, 1.0), ("1", 1.0), (1, -1.0), (True, 1.0)])
def test_a_wrong_settle_batch_is_refused(count: Any, seconds: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        SettleBatch(count, seconds)
    assert str(caught.value) == f"A SettleBatch has a count from 1 and seconds from 0, not {count!r} and {seconds!r}."


def test_the_tiers_are_those_of_the_broker() -> None:
    assert [name for name, part in vars(Broker).items() if isinstance(part, property)] == list(TIERS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_core_verb_is_missed(verb: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Pigeons has no {verb}\(\)"):
        complete(pigeons(verb))


@pytest.mark.parametrize(("broker", "sentence"), INCOMPLETE)
def test_an_app_that_is_given_one_is_not_made(broker: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Laneway(broker=broker)
    assert str(caught.value) == sentence + WHERE


@pytest.mark.parametrize(("broker", "sentence"), INCOMPLETE)
def test_a_url_of_one_is_refused_when_it_is_opened(monkeypatch: pytest.MonkeyPatch, broker: Any, sentence: str) -> None:
    def make(url: Url) -> Any:
        return broker

    found = metadata.EntryPoints([metadata.EntryPoint("pigeon", "third_party:make", "laneway.brokers")])
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: found.select(group=group))
    monkeypatch.setitem(sys.modules, "third_party", SimpleNamespace(make=make))
    app = Laneway("pigeon:")  # it is opened when it is first used
    for open_it in (lambda: open_broker("pigeon:"), lambda: app.broker, lambda: Laneway("memory:").use("pigeon:")):
        with pytest.raises(ConfigError) as caught:
            open_it()
        assert str(caught.value) == sentence + WHERE


# -- a tier that is lacked -----------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_that_is_lacked_refuses_every_verb_with_the_reason(tier: Any) -> None:
    broker = complete(pigeons(tier, lacks={tier: WHY}))
    absent = getattr(broker, tier)
    assert isinstance(absent, AbsentTier)
    for verb in ("stats", "reshard", "anything"):
        with pytest.raises(BrokerRefusedError) as caught:
            getattr(absent, verb)()
        assert str(caught.value) == WHY
    assert not hasattr(absent, "__len__"), "Python's own questions are answered as usual"
    assert complete(broker) is broker, "once more changes nothing"


def test_a_broker_may_lack_every_tier() -> None:
    app = Laneway(broker=pigeons(*TIERS, lacks=dict.fromkeys(TIERS, WHY)))
    app.development = True  # which the health tier would be told
    put(app.broker, "a")
    assert app.broker.status("q", "a") == "queued"
    with pytest.raises(BrokerRefusedError, match=WHY):
        app.broker.inspect.queues()


# -- the broker of the users' test kit -----------------------------------------------------------------


def test_a_faulty_broker_lacks_what_the_broker_behind_it_lacks() -> None:
    app = Laneway(broker=FaultyBroker(pigeons("shards", lacks={"shards": WHY})))
    with pytest.raises(BrokerRefusedError, match=WHY):
        app.broker.shards.reshard("q", 5)
    assert app.broker.inspect.queues() == {}


def test_a_faulty_broker_hands_on_what_its_tiers_are_told() -> None:
    broker = FaultyBroker(MemoryBroker())
    Laneway(broker=broker).development = True
    assert broker.inner.health.auto_create
    assert broker.health.auto_create
