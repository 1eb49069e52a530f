"""What a broker has done again and again while a worker serves its queues: a thread for each duty.

Such as moving to SQS what has become due in a table. Every process of a supervisor has its own; brokers see to it that
they share the work. A duty that fails is told as a broker that is away, and tried again. It is only ever ended between
two rounds; whoever is killed in the middle of one has left nothing half done that another cannot finish.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker import Duty
from ..errors import BrokerError
from .turns import FIRST_BACKOFF_S

if TYPE_CHECKING:
    from ..app import Laneway
    from .outage import Outage

#: The longest pause before a round that has failed is repeated: others do the same work, and jobs go on without it.
LONGEST_BACKOFF_S = 10.0


class Duties:
    """The duties of one worker."""

    def __init__(
        self, app: Laneway, duties: Sequence[Duty], outage: Outage, fatal: Callable[[BaseException], None]
    ) -> None:
        self._app = app
        self._outage = outage
        self._fatal = fatal
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._main, args=(duty,), name=f"laneway-duty-{duty.name}", daemon=True)
            for duty in duties
        ]

    def start(self) -> None:
        """Begin with the first rounds, at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Begin no more rounds. False: one is still under way."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _main(self, duty: Duty) -> None:
        who, backoff_s = f"duty {duty.name}", FIRST_BACKOFF_S  # no queue is named so
        try:
            while not self._stop.is_set():
                try:
                    pause_s = duty.round()
                except Exception as error:
                    if not isinstance(error, BrokerError):
                        self._app.logger.exception("the duty %s failed", duty.name)
                    self._outage.away(who, error)
                    pause_s = backoff_s * (0.5 + random.random())
                    backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
                else:
                    self._outage.back(who)
                    backoff_s = FIRST_BACKOFF_S
                self._stop.wait(pause_s)
        except BaseException as error:
            # What others count on would not be done, and nobody would know.
            self._fatal(error)
        finally:
            self._outage.forget(who)
