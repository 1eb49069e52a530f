"""Account: what all parts of the AWS broker share: settings, clock, clients, and the queues and tables found."""

from __future__ import annotations

import logging
import threading

from ...clock import Clock, SystemClock
from .clients import Clients
from .dynamodb.tables import Tables
from .settings import AWSSettings
from .sqs.queues import SQSQueues

_log = logging.getLogger("laneway")


class Account:
    """The AWS account of a broker. Safe to use from several threads."""

    def __init__(self, settings: AWSSettings, *, clock: Clock | None = None, clients: Clients | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.clients = clients or Clients(settings)
        self.queues = SQSQueues(self)
        self.tables = Tables(self)
        self._logged: set[str] = set()
        self._lock = threading.Lock()

    def log_once(self, subject: str, message: str, *, level: int = logging.ERROR) -> None:
        """Log a message about a subject, unless it has been logged and `log_again` has not been called since."""
        with self._lock:
            if subject in self._logged:
                return
            self._logged.add(subject)
        _log.log(level, "%s", message)

    def log_again(self, subject: str) -> None:
        """Log the next message about this subject: what it reported is over."""
        with self._lock:
            self._logged.discard(subject)
