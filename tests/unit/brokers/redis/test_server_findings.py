"""The findings about Redis servers that stop answering, or refuse, while they are checked."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.brokers.redis import repair
from laneway.errors import BrokerAwayError, BrokerError, BrokerRefusedError

pytestmark = pytest.mark.unit

INFO = b"redis_version:7.2.0\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n"


class FailingServer:
    """A server that fails at one command, and is its own only replica."""

    place = "Redis at loft:6379"
    is_cluster = False

    def __init__(self, command: str, error: BrokerError) -> None:
        self._command = command
        self._error = error

    def do(self, command: str, *args: str) -> Any:
        if command == self._command:
            raise self._error
        return INFO

    def servers(self) -> list[FailingServer]:
        return [self]

    def replicas(self) -> list[FailingServer]:
        return [self]


def codes(server: Any) -> list[str]:
    return [finding.code for finding in repair.problems(server)]


def test_a_connection_that_breaks_at_a_setting_is_an_outage() -> None:
    with pytest.raises(BrokerAwayError, match="It hung up"):
        codes(FailingServer("CONFIG", BrokerAwayError("It hung up.")))


def test_a_setting_that_may_not_be_read_is_unknown() -> None:
    assert codes(FailingServer("CONFIG", BrokerRefusedError("NOPERM"))) == ["fsync-unknown", "fsync-unknown"]


@pytest.mark.parametrize(
    ("error", "code"), [(BrokerAwayError("It hung up."), "away"), (BrokerRefusedError("NOPERM"), "refused")]
)
def test_a_cluster_server_that_refuses_is_not_called_away(error: BrokerError, code: str) -> None:
    server = FailingServer("INFO", error)
    server.is_cluster = True
    assert codes(server) == [code, code]
