"""What can be wrong with AWS, as Laneway says it. Owns the errors; mapping botocore's to them is `clients.py`'s."""

from __future__ import annotations

from ...errors import BrokerError


class AWSError(BrokerError):
    """AWS answered, and refused."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        #: AWS's own name for what is wrong.
        self.code = code


class MissingError(AWSError):
    """There is no such queue, or no such table."""


class ConditionError(AWSError):
    """A conditional write was not carried out, because its condition does not hold."""
