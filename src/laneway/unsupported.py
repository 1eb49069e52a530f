"""Refuses tasks that the broker cannot serve, when they are declared.

The check needs neither an open broker nor its packages. Only a broker that lacks a feature has a `refusal`.
Laneway's own brokers are found by the scheme of the URL; a third-party broker is asked when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from .config import TaskOptions
from .errors import DeclarationError
from .jobs.data import Kind
from .urls import Url

if TYPE_CHECKING:
    from .broker import Broker
    from .tasks.task import AnyTask

#: A sentence for what a broker cannot do for such a task of such a kind; None: it can do all of it.
Refusal = Callable[[TaskOptions, Kind], str | None]

#: The schemes of SQS: its own, and those of a queue's URL as Amazon writes it.
SQS = ("sqs", "http", "https")


def refusal_of(broker: Broker) -> Refusal | None:
    """What a broker says itself."""
    refusal: Refusal | None = getattr(broker, "refusal", None)
    return refusal


def refusal_for(url: str) -> Refusal | None:
    """What the broker of a URL will say. A stranger's is asked when it is opened."""
    if url.partition(":")[0].lower() not in SQS:
        return None
    from .brokers.aws.unsupported import refusal  # whoever uses another broker does not need it

    return partial(refusal, prefix=Url.parse(url).options.get("prefix", ""))


def ensure_supported(refusal: Refusal | None, tasks: Iterable[AnyTask]) -> None:
    """Raise DeclarationError for the first task that the broker refuses."""
    if refusal is None:
        return
    for task in tasks:
        if why := refusal(task.options, task.kind):
            raise DeclarationError(f"Task {task.name}: {why}")
