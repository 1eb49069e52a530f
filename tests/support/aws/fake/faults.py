"""The errors of AWS, and the rare but allowed behaviour of SQS (`Faults`) that a test can turn on."""

from __future__ import annotations

import random

#: The codes of the older query protocol, which boto3 still shows where SQS says them.
_QUERY = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "InvalidParameterValueException": "InvalidParameterValue",
    "MissingRequiredParameterException": "MissingParameter",
    "AccessDeniedException": "AccessDenied",
}
_PREFIXED = {
    "BatchEntryIdsNotDistinct",
    "BatchRequestTooLong",
    "EmptyBatchRequest",
    "InvalidBatchEntryId",
    "MessageNotInflight",
    "PurgeQueueInProgress",
    "QueueDeletedRecently",
    "TooManyEntriesInBatchRequest",
    "UnsupportedOperation",
}


class Refusal(Exception):
    """A request that AWS does not carry out. `kind` is its name in the JSON protocol."""

    def __init__(self, kind: str, message: str, status: int = 400, **more: object) -> None:
        super().__init__(message)
        self.kind, self.message, self.status, self.more = kind, message, status, more
        #: The code and the message of an entry that fails for this.
        self.in_batches = (self.query_code, message)

    @property
    def query_code(self) -> str:
        """Its name in the query protocol."""
        if self.kind in _PREFIXED:
            return f"AWS.SimpleQueueService.{self.kind}"
        return _QUERY.get(self.kind, self.kind)


class Expired(Refusal):
    """A receipt of a FIFO queue whose time is up. In a batch it has another name than by itself."""

    def __init__(self, handle: str) -> None:
        reason = "The receipt handle has expired."
        super().__init__(
            "InvalidParameterValueException", f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"
        )
        self.in_batches = ("ReceiptHandleIsInvalid", "The receipt handle has expired")


def invalid_value(message: str) -> Refusal:
    return Refusal("InvalidParameterValueException", message)


def invalid(parameter: str, value: object, reason: str) -> Refusal:
    return invalid_value(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> Refusal:
    return Refusal("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


class Faults:
    """What SQS is allowed to do and seldom does, as often as a test wants it: shares from 0 to 1.

    Counters say how often it has really happened.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed(seed)
        self.clear()

    def seed(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def clear(self) -> None:
        """No faults from now on."""
        #: Deliveries on a standard queue that are made once more, whether the message is deleted meanwhile or not.
        self.duplicates = 0.0
        #: Messages of a standard queue that are overtaken by up to 30 others, and batches received from a FIFO queue
        #: whose messages are listed in any order (their sequence numbers tell the true one).
        self.reordered = 0.0
        #: Receives that do not wait and find nothing although there is something, as a short poll may.
        self.misses = 0.0
        self.duplicated = self.overtaken = self.missed = 0

    def happens(self, share: float) -> bool:
        return share > 0 and self.chance.random() < share
