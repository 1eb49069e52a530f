"""Jobs on AWS: SQS for what is to be run soon, a DynamoDB table for what is to be run later.

URLs can be read (`urls`) without boto3, which is only loaded with the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import AWSBroker

__all__ = ["AWSBroker"]


def __getattr__(name: str) -> Any:
    if name != "AWSBroker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .broker import AWSBroker

    return AWSBroker
