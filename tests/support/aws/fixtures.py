"""Fixtures: servers that speak AWS's protocols, shared by the tests of a process and emptied for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import botocore.loaders
import botocore.session
import pytest

from tests.support.aws.real_account import RealPlace, _real, real
from tests.support.aws.servers import ENVIRONMENT, FakeServer, MotoServer

__all__ = ["_real", "real"]

#: `make test-aws`: the tests on the fixture `aws`, and no others, on AWS itself.
ON_AWS = bool(os.environ.get("LANEWAY_TEST_AWS"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ON_AWS:
        kept = [item for item in items if "aws" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture(scope="session", autouse=True)
def _aws_environment() -> Iterator[None]:
    """Credentials that open nothing: no test finds its way to the real AWS, unless it is told to."""
    if ON_AWS:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def _descriptions_of_aws() -> Iterator[None]:
    """What boto3 knows of AWS is read once: to read it for every client takes longer than most tests."""
    loader, get = botocore.loaders.create_loader(), botocore.session.get_session

    def get_session() -> botocore.session.Session:
        session = get()
        session.register_component("data_loader", loader)
        return session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "get_session", get_session)
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
def server(request: pytest.FixtureRequest) -> MotoServer | FakeServer:
    """Each of them, one after the other."""
    server: MotoServer | FakeServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=["real"] if ON_AWS else ["fake", "moto"])
def aws(request: pytest.FixtureRequest) -> MotoServer | FakeServer | RealPlace:
    """The same; with `make test-aws`, AWS itself. For tests that know no more of it than any `Place` has."""
    place: MotoServer | FakeServer | RealPlace = request.getfixturevalue(request.param)
    return place
