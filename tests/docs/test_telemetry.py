"""The telemetry page lists every event with every field, in the order of the code, and nothing else."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest

from laneway import telemetry

PAGE = (Path(__file__).parent.parent.parent / "docs" / "telemetry.md").read_text(encoding="utf-8")
EVENTS = {
    name: kind
    for name, kind in vars(telemetry).items()
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind.__module__ == telemetry.__name__
}


def test_every_event_is_listed_and_no_other():
    assert EVENTS
    assert re.findall(r"^### (\w+)$", PAGE, flags=re.MULTILINE) == list(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_every_field_is_listed_and_no_other(name):
    part = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert part is not None
    assert re.findall(r"^\| `(\w+)` \| \S", part[1], flags=re.MULTILINE) == list(EVENTS[name].__struct_fields__)


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_says_what_it_is(name):
    assert (EVENTS[name].__doc__ or "").strip().endswith(".")


def test_no_event_has_a_place_for_arguments():
    for kind in EVENTS.values():
        assert not {"body", "args", "params", "payload", "payloads", "job", "jobs", "call"} & set(
            kind.__struct_fields__
        )
