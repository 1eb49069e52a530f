"""Worker processes to be harmed, as the supervisor's own tests have them, and AWS's servers, as the tests of AWS do."""

from tests.integration.supervisor.conftest import site
from tests.support.aws.fixtures import _aws_environment, _fake, _moto, _real, aws, fake, moto, real, server

__all__ = ["_aws_environment", "_fake", "_moto", "_real", "aws", "fake", "moto", "real", "server", "site"]
