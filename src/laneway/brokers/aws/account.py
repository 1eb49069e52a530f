"""Account: what all parts of the AWS broker share: settings, clock, clients, queues, tables, topics and pollers."""

from __future__ import annotations

import logging

from ...clock import Clock, SystemClock
from .clients import Clients
from .dynamodb.poller import Pollers
from .dynamodb.tables import Tables
from .settings import AWSSettings
from .sns.topics import Topics
from .sqs.queues import SQSQueues

#: The most subjects that are remembered as logged. Beyond that, some are logged again.
_REMEMBER = 10_000

_log = logging.getLogger("laneway")


class Account:
    """The AWS account of a broker. Safe to use from several threads."""

    def __init__(self, settings: AWSSettings, *, clock: Clock | None = None, clients: Clients | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.clients = clients or Clients(settings)
        self.queues = SQSQueues(self)
        self.tables = Tables(self)
        self.topics = Topics(self)
        #: The pollers of this process. Code that stores a delayed job notifies them of its due time.
        self.pollers = Pollers()
        self._logged: set[str] = set()

    def log_once(self, subject: str, message: str, *, level: int = logging.ERROR) -> None:
        """Log a message about a subject, unless it has been logged and `log_again` has not been called since."""
        # No lock: two threads may log the same message, and the child of a fork cannot wait for a lock of its parent.
        if subject in self._logged:
            return
        if len(self._logged) >= _REMEMBER:
            self._logged.clear()
        self._logged.add(subject)
        _log.log(level, "%s", message)

    def log_again(self, subject: str) -> None:
        """Log the next message about this subject: what it reported is over."""
        self._logged.discard(subject)
