"""`complete`: a broker that does not keep the contract is refused when it is given or opened, in a sentence."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from laneway import Laneway
from laneway.broker import FEATURES, TIERS, AbsentTier, Capabilities, CoreBroker, Feature, complete
from laneway.brokers.sqlite import MemoryBroker
from laneway.errors import BrokerRefusedError, ConfigError
from laneway.testing.conformance.fixtures import put
from laneway.testing.faulty_broker import FaultyBroker
from laneway.urls import Url, open_broker
from tests.support.second_broker import SecondBroker

pytestmark = pytest.mark.unit

VERBS = [verb for verb in vars(CoreBroker) if not verb.startswith("_")]
WHERE = ". docs/writing-a-broker.md describes the contract."
WHY = "Pigeons cannot be counted; look into the loft."


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
        "Pigeons has no capabilities; give it the attribute, a laneway.broker.Capabilities",
        id="no capabilities",
    ),
    pytest.param(
        as_attributes(),
        "Pigeons has no capabilities; give it the attribute, a laneway.broker.Capabilities",
        id="attributes",
    ),
    pytest.param(
        pigeons(capabilities={"shared": True}),
        "Pigeons has no capabilities; give it the attribute, a laneway.broker.Capabilities",
        id="capabilities of another kind",
    ),
    pytest.param(pigeons("reclaim"), "Pigeons has no reclaim()", id="no verb"),
    pytest.param(
        pigeons("reclaim", reclame=nothing), "Pigeons has no reclaim() (did you mean reclame?)", id="verb misspelled"
    ),
    pytest.param(pigeons(reclaim=5), "Pigeons has no reclaim()", id="no function"),
    pytest.param(pigeons("reclaim", _reclaim=nothing), "Pigeons has no reclaim()", id="private"),
    pytest.param(
        pigeons(lacks={"teleport": WHY}),  # type: ignore[dict-item]  # it is wrong
        "Pigeons lacks 'teleport', which is no feature",
        id="unknown feature",
    ),
    pytest.param(
        pigeons("shards", lacks={"shard": WHY}),  # type: ignore[dict-item]  # it is wrong
        "Pigeons lacks 'shard', which is no feature (did you mean shards?)",
        id="feature misspelled",
    ),
    pytest.param(
        pigeons("shards", lacks={"shards"}),  # type: ignore[arg-type]  # it is wrong
        "Pigeons has capabilities whose lacks is no mapping of features to reasons",
        id="no reasons",
    ),
    *(
        pytest.param(
            pigeons("shards", lacks={"shards": reason}),
            "Pigeons gives no reason why it lacks shards; give a sentence",
            id=f"reason {reason!r}",
        )
        for reason in ("", " ", 5)
    ),
    pytest.param(
        pigeons(wait=lambda queues: set[str]()),
        "wait() of Pigeons does not take the arguments (queues, timeout_s): too many positional arguments",
        id="an argument missing",
    ),
    pytest.param(
        pigeons(reschedule=lambda queue, key, identity=None, *, delay=0.0, perform_at=None: False),
        "reschedule() of Pigeons does not take the arguments (queue, key, identity, delay_s, perform_at): "
        "got an unexpected keyword argument 'delay_s'",
        id="an argument misspelled",
    ),
    pytest.param(pigeons(turn=async_turn), "turn() of Pigeons is async, and a broker's verbs are not", id="async"),
    pytest.param(
        pigeons(events=Pigeons), "The events tier of Pigeons is a class; make an object of it", id="a class as a tier"
    ),
    pytest.param(
        SlottedPigeons(), "SlottedPigeons has no attribute shards that can be set; let it have one", id="slots"
    ),
    pytest.param(
        pigeons(lacks={"shards": WHY}),
        "Pigeons has the tier shards, and its capabilities say that it lacks it",
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
            f"The {tier} tier of Pigeons has no {verb}()",
            id=f"no {tier}.{verb}",
        )
        for tier, verb in (
            ("inspect", "undelivered"),
            ("operate", "empty_morgue"),
            ("events", "subscriptions"),
            ("shards", "reshard"),
            ("health", "duties"),
        )
    ),
    pytest.param(
        pigeons(operate=tier_without("operate", "revive", revife=nothing)),
        "The operate tier of Pigeons has no revive() (did you mean revife?)",
        id="verb of a tier misspelled",
    ),
    pytest.param(
        pigeons(health=tier_without("health", "auto_create")),
        "The health tier of Pigeons has no auto_create",
        id="no auto_create",
    ),
]


@pytest.mark.parametrize(("broker", "sentence"), INCOMPLETE)
def test_an_incomplete_broker_is_refused(broker: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        complete(broker)
    assert str(caught.value) == sentence + WHERE


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
