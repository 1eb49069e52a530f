"""Fixtures for the unit tests of the AWS broker: harmless credentials and the fake in this process."""

from tests.support.aws.fixtures import _aws_environment, _descriptions_of_aws, _fake, fake

__all__ = ["_aws_environment", "_descriptions_of_aws", "_fake", "fake"]
