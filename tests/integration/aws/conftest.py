"""Fixtures for the tests on AWS servers: the fake, moto's server, and AWS itself for `make test-aws`."""

from tests.support.aws.fixtures import (
    _aws_environment,
    _descriptions_of_aws,
    _fake,
    _moto,
    _real,
    aws,
    fake,
    moto,
    pytest_collection_modifyitems,
    real,
    server,
)

__all__ = [
    "_aws_environment",
    "_descriptions_of_aws",
    "_fake",
    "_moto",
    "_real",
    "aws",
    "fake",
    "moto",
    "pytest_collection_modifyitems",
    "real",
    "server",
]
