"""Fixtures for chaos tests: worker processes as in the supervisor tests, and AWS servers as in the AWS tests."""

from tests.integration.supervisor.conftest import site
from tests.support.aws.fixtures import _aws_environment, _fake, _moto, _real, aws, fake, moto, real, server

__all__ = ["_aws_environment", "_fake", "_moto", "_real", "aws", "fake", "moto", "real", "server", "site"]
