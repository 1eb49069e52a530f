"""What is unwell about events on AWS: topics, subscriptions, and who may send to a listener's queue. Looks only.

Raw delivery and an envelope are both fine: a worker reads either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....errors import BrokerAwayError
from ....events.event import Subscription
from ..errors import AWSError, DeniedError, MissingError
from .probing import denied

if TYPE_CHECKING:
    from ....app import Laneway
    from ..broker import AWSBroker

_CREATE = "make it with laneway aws create TARGET"
_SUBSCRIBE = "laneway aws create TARGET does that, and so does laneway subscribe TARGET"


def check_listener(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[str]:
    """What a listener needs beside its queue, and does not have. The queue exists."""
    try:
        yield from _door(broker, name, wanted)
        yield from _tie(broker, name, wanted)
    except BrokerAwayError:
        raise
    except AWSError as error:
        yield str(error)


def notes_on_events(broker: AWSBroker, app: Laneway) -> list[str]:
    """That a prefix cuts an app's listeners off from whoever has another."""
    prefix = broker.settings.prefix
    if not prefix or not app.listeners():
        return []
    return [
        f"The prefix {prefix} of the URL stands before topics and listeners' queues, too: the listeners of this app "
        "hear only what is published with the same prefix, and nothing of Eventboss for Ruby or JavaScript, which know "
        "none."
    ]


def _door(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[str]:
    try:
        door = broker.subscribing.door(wanted.queue)
    except (DeniedError, MissingError):
        return  # that was said of the queue
    if denied := broker.subscribing.is_denied(door, wanted.topic):
        yield denied
    elif not broker.subscribing.is_open(door, wanted.topic):
        yield (
            f"The access policy of the SQS queue {door.channel.name} does not let the SNS topic "
            f"{broker.topics.name(wanted.topic)} send to it, so that the listener {name} gets no events; {_SUBSCRIBE}."
        )


def _tie(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[str]:
    topic, queue = broker.topics.name(wanted.topic), broker.channels.name_of(wanted.queue, False)
    try:
        tie = broker.ties.one(wanted.topic, wanted.queue)
    except MissingError:
        yield f"There is no SNS topic {topic}, which the listener {name} hears; {_CREATE}."
        return
    except DeniedError as error:
        yield denied(f"the SNS topic {topic}", ["sns:ListSubscriptionsByTopic"], error)
        return
    if tie is None:
        yield (
            f"The SQS queue {queue} is not subscribed to the SNS topic {topic}, so that the listener {name} gets no "
            f"events; {_SUBSCRIBE}."
        )
        return
    try:
        terms = broker.ties.terms(tie)
    except DeniedError as error:
        yield denied(f"the subscription of {queue}", ["sns:GetSubscriptionAttributes"], error)
        return
    if not terms.let_through(wanted.filter):
        yield (
            f"The subscription of the SQS queue {queue} to {topic} has another filter than the listener {name} "
            "declares; laneway subscribe TARGET sets it, and so does a worker that may."
        )
