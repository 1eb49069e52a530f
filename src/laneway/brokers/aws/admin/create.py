"""Creates missing queues, tables, topics and subscriptions, by command or in development.

It may be repeated. An existing resource is reported and not changed, but a queue's access policy gets a statement if
it does not let the topic send. Each resource is created after those that it refers to: an interrupted run leaves no
dangling reference, and the next run continues. In development the worker itself creates the missing resources of its
queues (`provide`), without `laneway aws create`. Then a queue without a redrive policy, as the Ruby original's
development mode makes them, gets such a policy, and the worker sets filters itself. It does not create the waiter
table: most features work without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ....broker import AutoCreateNote
from .needs import QueueRequirement, needs_of
from .resources import resources_of
from .resources.resource import CreateStep, Creation

if TYPE_CHECKING:
    from ....app import Laneway
    from ..account import Account


def create_resources(
    account: Account,
    needs: Mapping[str, QueueRequirement],
    creation: Creation,
    *,
    tables: bool = True,
    publishes: Collection[str] = (),
) -> Iterator[CreateStep]:
    """Create what is missing. A step tells of each resource, while the run goes on."""
    for resource in resources_of(account, needs, tables=tables, publishes=publishes):
        yield from resource.create(creation)
    account.queues.look_again()


def provide(account: Account, app: Laneway, queues: Collection[str]) -> list[AutoCreateNote]:
    """Create what is missing for these queues, with dead-letter queues, and for listeners topics and subscriptions.

    Returns a note for each resource that was created, and for each existing one that is not as it should be.
    """
    needs = needs_of(app)
    wanted = {queue: needs.get(queue) or QueueRequirement(queue) for queue in queues}
    steps = list(create_resources(account, wanted, Creation(development=True), tables=False))
    return [AutoCreateNote(step.text, step.level == "made") for step in steps if step.level in ("made", "problem")]
