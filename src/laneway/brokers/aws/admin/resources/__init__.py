"""The AWS resources that an app needs: one class describes each.

A class has what AWS knows of the resource (`look`), how to create it (`make`), what is wrong with it (`wrong`,
`missing`), which IAM actions each role needs (`grants`), and which requests try these permissions (`probes`).
`create`, `check`, `iam` and development mode are loops over `resources_of`.

Checks change nothing. A probe is harmless: AWS finds it invalid only after it has checked the permission, or it has no
effect, such as a write under a condition that does not hold. So every answer except a denial means that the action is
allowed.

- `resource`: Resource: what the classes have in common; the roles and their actions
- `queues`: Queue and DeadLetterQueue
- `table`: TableResource
- `events`: Topic and ListenerSubscription
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ..needs import QueueRequirement
from .events import ListenerSubscription, Topic
from .queues import Queue
from .resource import Resource
from .table import TableResource

if TYPE_CHECKING:
    from ...account import Account


def resources_of(
    account: Account, needs: Mapping[str, QueueRequirement], *, tables: bool = True, publishes: Collection[str] = ()
) -> Iterator[Resource]:
    """The resources for these needs, each after those that it refers to. `publishes`: the topics that the app
    publishes to."""
    for topic in publishes:
        yield Topic(account, topic)
    for need in needs.values():
        listener = ", ".join(need.plain)
        if need.subscription is not None and need.subscription.topic not in publishes:
            yield Topic(account, need.subscription.topic, listener)
        for fifo in need.kinds:
            yield Queue(account, need, fifo)
        if need.subscription is not None:
            yield ListenerSubscription(account, need.subscription, listener)
    if tables:
        for name in dict.fromkeys(map(account.tables.name, needs)):
            yield TableResource(account, name)
