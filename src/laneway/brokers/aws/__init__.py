"""The AWS broker: SQS for jobs that run soon, DynamoDB for jobs that run later, SNS for events.

`settings` parses URLs without boto3, which is loaded only with the broker. `unsupported` does not load it either.

- `broker`: AWSBroker: passes each verb to its part
- `account`: Account: settings, clock, clients, queues, tables, topics and pollers, which all parts share
- `settings`: parses sqs: URLs without loading boto3
- `clients`: boto3 clients, safe for threads and forks
- `sqs/`: queues, messages, turns, settlement, and dead letters
- `dynamodb/`: delayed jobs, retry state, job history, workers, and the poller
- `sns/`: topics, subscriptions, and publishing
- `inspect`: stats, workers, find, listings, and the status of one job
- `operate`: cancels, moves, runs, buries and deletes delayed jobs
- `unsupported`: refuses tasks and jobs that SQS cannot handle, at declaration and at enqueue
- `errors`: turns botocore errors into Laneway errors
- `admin/`: creates and checks the AWS resources of an app; prints its IAM policy
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
