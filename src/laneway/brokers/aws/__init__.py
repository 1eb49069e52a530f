"""Jobs on AWS: SQS for what is to be run soon, a DynamoDB table for what is to be run later."""

from .broker import AWSBroker

__all__ = ["AWSBroker"]
