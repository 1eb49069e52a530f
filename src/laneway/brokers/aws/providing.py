"""Development on AWS: what a worker's queues need and is missing is made by the worker itself.

Nobody has to have run `laneway aws create` then. The waiter table is not made: most things go without it, and that
command makes it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .creating import Creation
from .needs import Need, needs_of

if TYPE_CHECKING:
    from ...app import Laneway
    from .broker import AWSBroker


def provide(broker: AWSBroker, app: Laneway, queues: Collection[str]) -> list[str]:
    """Make what is missing for these queues: with their dead letters, and for listeners topics and subscriptions.

    Returns a sentence for each thing that was made, or that is there and not as it should be.
    """
    needs = needs_of(app)
    wanted = {queue: needs.get(queue) or Need(queue) for queue in queues}
    steps = list(Creation(broker).carry_out(wanted, tables=False))
    broker.channels.look_again()
    return [step.text for step in steps if step.level in ("made", "problem")]
