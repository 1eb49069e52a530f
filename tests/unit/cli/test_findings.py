"""`laneway check` shows what a broker's own check finds, whichever tiers the broker has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click.testing
import pytest

from laneway import Laneway
from laneway.broker import TIERS, Capabilities, Finding
from laneway.brokers.sqlite import MemoryBroker
from laneway.cli.commands.check import check
from laneway.cli.findings import examine
from laneway.errors import BrokerAwayError, BrokerRefusedError, ConfigError

pytestmark = pytest.mark.unit

UNSEEN = "Pigeons cannot be counted; look into the loft."
UNCHECKED = "Pigeons cannot be checked; look into the loft."


class SickHealth:
    """A health tier that has found a problem."""

    auto_create = False

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def check(self, app: Laneway | None = None) -> list[Finding]:
        return [Finding("problem", "sick", "A pigeon is sick; call the vet.")]

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)


def shop(broker: Any) -> Laneway:
    app = Laneway(broker=broker)

    @app.task
    def count(pigeons: int) -> None: ...

    return app


def found(broker: Any) -> dict[str, tuple[str, str]]:
    return {each.code: (each.level, each.text) for each in examine(shop(broker), "shop")}


def test_the_verdict_of_a_broker_that_cannot_be_inspected_is_shown() -> None:
    broker: Any = MemoryBroker()
    broker.capabilities = Capabilities(shared=False, lacks={"inspect": UNSEEN})
    del broker.inspect
    assert found(broker)["healthy"][0] == "ok"
    broker.health = SickHealth(broker.health)
    findings = found(broker)
    assert findings["sick"] == ("problem", "A pigeon is sick; call the vet.")
    assert findings["cannot-inspect"] == ("note", f"Its queues cannot be looked at: {UNSEEN}")
    assert "healthy" not in findings


def test_a_broker_that_cannot_be_checked_is_not_called_healthy() -> None:
    broker: Any = MemoryBroker()
    broker.capabilities = Capabilities(shared=False, lacks={"health": UNCHECKED})
    del broker.health
    findings = found(broker)
    assert findings["cannot-check"] == ("note", f"The broker can be neither checked nor mended: {UNCHECKED}")
    assert "healthy" not in findings


def core_broker(reason: str = "Core has no such tier.") -> Any:
    """A broker with the core verbs only."""
    broker: Any = MemoryBroker()
    broker.capabilities = Capabilities(shared=False, lacks=dict.fromkeys(TIERS, reason))
    for tier in TIERS:
        delattr(broker, tier)
    return broker


def test_a_broker_of_core_verbs_is_asked_whether_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BrokerAwayError("The loft does not answer.")

    broker = core_broker()
    assert found(broker)["opened"][0] == "ok"
    monkeypatch.setattr(broker, "leases", fail)
    findings = found(broker)
    assert findings["broker"] == ("problem", "The loft does not answer.")
    assert "opened" not in findings


def test_a_broker_that_cannot_be_mended_is_not_unhealthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loft.py").write_text(
        "from tests.unit.cli.test_findings import core_broker, shop\napp = shop(core_broker())\n"
    )
    monkeypatch.chdir(tmp_path)
    done = click.testing.CliRunner().invoke(check, ["loft.py", "--repair"])
    assert done.exit_code == 0, done.output
    assert done.output.count("Core has no such tier.") == 2
    assert done.output.splitlines()[-1] == "ok       Nothing was mended."


def test_a_listing_that_is_refused_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise BrokerRefusedError("This user may not list pigeons; allow it.")

    broker = MemoryBroker()
    broker.declare("default", 1)
    monkeypatch.setattr(broker.inspect, "listing", refuse)
    assert found(broker)["broker"] == ("problem", "This user may not list pigeons; allow it.")


def test_a_finding_has_one_of_three_levels() -> None:
    with pytest.raises(ConfigError) as caught:
        Finding("Problem", "sick", "A pigeon is sick.")  # type: ignore[arg-type]  # it is wrong
    assert str(caught.value) == "A finding has the level ok, note or problem, not 'Problem'."
