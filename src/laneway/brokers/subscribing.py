"""What the brokers do alike with subscriptions: the check of their names, and filters as texts. No state."""

from __future__ import annotations

from typing import Any

import msgspec

from ..config import name_problem
from ..errors import BrokerError, ConfigError
from ..events.event import FilterPolicy, Subscription

_read = msgspec.json.Decoder(dict[str, list[Any]]).decode


def check_subscription(subscription: Subscription) -> None:
    """Refuse names that no queue and no topic can have."""
    for what, name in (("topic", subscription.topic), ("queue", subscription.queue)):
        if problem := name_problem(f"A subscription's {what}", name):
            raise ConfigError(problem)


def write_filter(subscription: Subscription) -> str | None:
    """A subscription's filter as a text, the same for equal ones; None, for one that wants everything, is none."""
    if not subscription.filter:
        return None
    try:
        return msgspec.json.encode(subscription.filter, order="deterministic").decode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_whose(subscription.topic, subscription.queue)} cannot be written as JSON: {error}."
        ) from None


def read_filter(topic: str, queue: str, text: str | None) -> FilterPolicy | None:
    """A filter from its text; raises BrokerError if somebody has written there what is none."""
    try:
        return None if text is None else _read(text)
    except ValueError as error:  # also what msgspec says of JSON that is something else
        raise BrokerError(
            f"{_whose(topic, queue)} cannot be read ({error}); subscribe again, with laneway subscribe."
        ) from None


def _whose(topic: str, queue: str) -> str:
    return f"The filter of the queue {queue}, for what it gets of the topic {topic},"
