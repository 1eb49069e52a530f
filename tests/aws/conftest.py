"""Servers that speak AWS's protocols, shared by the tests of a process and empty for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.aws.servers import ENVIRONMENT, FakeServer, MotoServer


@pytest.fixture(scope="session", autouse=True)
def _aws_environment() -> Iterator[None]:
    """Credentials that open nothing: no test ever finds its way to the real AWS."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def _moto() -> Iterator[MotoServer]:
    server = MotoServer.start()
    yield server
    server.end()


@pytest.fixture(scope="session")
def _fake() -> Iterator[FakeServer]:
    server = FakeServer.start()
    yield server
    server.end()


@pytest.fixture
def moto(_moto: MotoServer) -> MotoServer:
    """moto's server, empty."""
    _moto.reset()
    return _moto


@pytest.fixture
def fake(_fake: FakeServer) -> FakeServer:
    """The fake, empty, on the machine's clock. For another clock, a test starts its own."""
    _fake.reset()
    return _fake


@pytest.fixture(params=["fake", "moto"])
def aws(request: pytest.FixtureRequest) -> MotoServer | FakeServer:
    """Each of them, one after the other."""
    server: MotoServer | FakeServer = request.getfixturevalue(request.param)
    return server
