"""Subscription, EventNames, types of attributes and the key of an event's copy: plain data, no state.

An app publishes to a topic. Each listener has a queue of its own, and a subscription connects the queue to the
topic. Names follow Eventboss for Ruby and JavaScript, so that programs of either kind receive each other's events.

The checks of names are in `names.py`: they need `config.py`, which imports `jobs/data.py`, which imports this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: What stands in every name, unless an app says otherwise.
DEFAULT_INFIX = "eventboss"
#: What the name of the queue for dead letters ends with, where that is a queue of its own.
DEAD_LETTERS = "-deadletter"
#: The longest name, that of the dead letters included.
LONGEST_NAME = 80

#: What is published beside a value, for filters and for whoever listens.
Attribute = str | int | float | list[str]
Attributes = Mapping[str, Attribute]

#: What a subscription wants of an event's attributes, in the words of SNS: {"country": ["DE", {"prefix": "A"}]}.
FilterPolicy = dict[str, list[Any]]


class Subscription(msgspec.Struct, frozen=True):
    """A queue that gets a copy of whatever is published to a topic, if the attributes pass its filter."""

    topic: str
    queue: str
    filter: FilterPolicy | None = None


class EventNames(msgspec.Struct, frozen=True):
    """How an app names what belongs to events."""

    infix: str = DEFAULT_INFIX
    env: str | None = None

    def topic(self, event: str, source: str | None) -> str:
        """What an event is published to; without a source it is generic, and many apps publish it."""
        return "-".join(part for part in (self.infix, source, event, self.env) if part)

    def queue(self, destination: str, event: str, source: str | None) -> str:
        """Where one app's copies of an event go."""
        return f"{destination}-{self.topic(event, source)}"


def copy_key(event_id: str, queue: str) -> str:
    """The key of the job that is a queue's copy of an event: two listeners of one app must not be one job."""
    return f"{event_id}@{queue}"


def is_copy(key: str, queue: str) -> bool:
    """Whether a plain job is an event's, by its key: its body is then a value, whatever it looks like."""
    return key.endswith(f"@{queue}")
