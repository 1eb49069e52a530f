"""Development on AWS: what a worker's queues need and is missing is made by the worker itself.

Nobody has to have run `laneway aws create` then. A queue without a redrive policy, as the Ruby original's development
mode makes them, gets one; all else that exists stays as it is, but for filters, which the worker itself sets. The
waiter table is not made: most things go without it, and that command makes it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ....capabilities import Provided
from .create import Creation
from .needs import Need, needs_of

if TYPE_CHECKING:
    from ....app import Laneway
    from ..broker import AWSBroker


def provide(broker: AWSBroker, app: Laneway, queues: Collection[str]) -> list[Provided]:
    """Make what is missing for these queues: with their dead letters, and for listeners topics and subscriptions.

    Says of each thing that it was made, or that it is there and not as it should be.
    """
    needs = needs_of(app)
    wanted = {queue: needs.get(queue) or Need(queue) for queue in queues}
    steps = list(Creation(broker, development=True).carry_out(wanted, tables=False))
    broker.channels.look_again()
    return [Provided(step.text, step.level == "made") for step in steps if step.level in ("made", "problem")]
