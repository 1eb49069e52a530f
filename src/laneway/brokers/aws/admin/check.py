"""AWSHealth: checks queues, dead letters, tables, topics, subscriptions, permissions and the clock. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from ....broker import AutoCreateNote, Duty, Finding
from ..errors import AWSError
from .create import provide
from .needs import QueueRequirement, needs_of
from .resources import resources_of
from .resources.table import TableResource

if TYPE_CHECKING:
    from ....app import Laneway
    from ..account import Account
    from ..broker import AWSBroker

#: Seconds by which this machine's clock may differ from that of AWS. Due times and expiring signatures depend on it.
CLOCK_S = 60.0


class AWSHealth:
    """The health tier."""

    def __init__(self, broker: AWSBroker) -> None:
        self._broker = broker
        self.auto_create = False

    def unmade(self) -> Finding | None:
        return None

    def check(self, app: Laneway | None = None) -> list[Finding]:
        """Check the queues that were declared or asked for and those of the app, with their tables and listeners."""
        account, inspect = self._broker.account, self._broker.inspect
        needs = {queue: QueueRequirement(queue) for queue in inspect.queues() if inspect.is_own(queue)}
        needs |= needs_of(app) if app is not None else {}
        found = [finding for resource in resources_of(account, needs) for finding in resource.problems()]
        if not needs and account.settings.table is not None:
            found += TableResource(account, account.settings.table).problems()
        found += _clock(account, needs)
        if account.settings.prefix and app is not None and app.listeners():
            found.append(_prefix_note(account.settings.prefix))
        return list(dict.fromkeys(found))

    def repair(self) -> list[str]:
        """Does nothing: SQS needs no repair."""
        return []

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        """The poller of the waiter tables, and the heartbeat of this worker."""
        return [self._broker.make_poller(queues), self._broker.heartbeat]

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        return provide(self._broker.account, app, queues)


def _prefix_note(prefix: str) -> Finding:
    return Finding(
        "note",
        "prefix",
        f"The prefix {prefix} of the URL stands before topics and listeners' queues, too: the listeners of this app "
        "hear only what is published with the same prefix, and nothing of Eventboss for Ruby or JavaScript, which "
        "know none.",
        prefix,
    )


def _clock(account: Account, queues: Collection[str]) -> Iterator[Finding]:
    """A finding if this machine's clock differs from the date of an answer from AWS."""
    queue = next((found for queue in queues for found in account.queues.existing(queue)), None)
    if queue is None:
        return
    try:
        answer = account.clients.sqs("get_queue_attributes", QueueUrl=queue.url, AttributeNames=["QueueArn"])
    except AWSError:
        return  # the check of the queue has reported it
    now = account.clock.now()
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if date is None:
        return
    apart = now - parsedate_to_datetime(date).timestamp()
    if abs(apart) > CLOCK_S:
        yield Finding(
            "problem",
            "clock",
            f"This machine's clock is {abs(apart):.0f} seconds {'ahead of' if apart > 0 else 'behind'} that of AWS, so "
            "that delayed jobs run at the wrong time; set it, by NTP.",
            queue.name,
        )
