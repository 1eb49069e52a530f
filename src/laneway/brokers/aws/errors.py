"""The AWS errors of Laneway, and a sentence for each error of botocore.

A sentence quotes AWS, which names users, actions and resources. It does not quote AWS if a signature is refused: AWS
then repeats the signed text, and the session token is a part of that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from botocore import exceptions as botocore_errors

from ...errors import BrokerAwayError, BrokerError, BrokerRefusedError, EnqueueError, NoQueueError


class AWSError(BrokerRefusedError):
    """AWS answered, and refused."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        #: AWS's own name for what is wrong.
        self.code = code


class MissingError(AWSError):
    """There is no such queue, no such topic, or no such table."""


class MissingQueueError(MissingError, NoQueueError):
    """It is a queue that there is not, and others may be there."""


class ConditionError(AWSError):
    """A conditional write was not carried out, because its condition does not hold."""


class BatchRefusedError(AWSError):
    """AWS took none, or not all, of the entries of a batch, and it is they that are wrong: a repeat does not help."""

    def __init__(self, message: str, *, code: str = "", entries: Sequence[int] = (), service: str = "SQS") -> None:
        super().__init__(message, code=code)
        self.service = service
        #: Which entries they are, counted from 0.
        self.entries = list(entries)


class DeniedError(AWSError):
    """Whoever the credentials belong to may not do this, or there are no credentials that AWS knows."""


_NO_QUEUE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
_MISSING = frozenset(
    {
        *_NO_QUEUE,
        "NotFound",
        "NotFoundException",
        "ResourceNotFoundException",
        "TableNotFoundException",
    }
)
#: After these a repeat may help, and what botocore repeats by itself was in vain.
_THROTTLED = frozenset(
    {
        "KmsThrottled",
        "KMSThrottling",
        "KMS.ThrottlingException",
        "AWS.SimpleQueueService.KmsThrottled",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_AWAY = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "PriorRequestNotComplete",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "TransactionInProgressException",
    }
)
_OVER_LIMIT = frozenset({"OverLimit", "AWS.SimpleQueueService.OverLimit"})
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "AuthorizationError", "KMS.AccessDeniedException", "KMSAccessDenied"}
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_UNKNOWN = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "UnrecognizedClientException",
    }
)
_CLOCK = frozenset(
    {"InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch"},
)

#: Nothing can be asked for at all.
_OURS = frozenset({"NoRegionError", "SSLError"})

_NO_CREDENTIALS = (
    botocore_errors.NoCredentialsError,
    botocore_errors.PartialCredentialsError,
    botocore_errors.NoAuthTokenError,
    botocore_errors.ProfileNotFound,
)
_BY_THEIR_NAMES = (
    "CredentialRetrievalError",
    "TokenRetrievalError",
    "SSOError",
    "LoginError",
    "MetadataRetrievalError",
)
#: Credentials that had to be fetched and could not be; older versions of botocore do not have all of them.
_UNFETCHED = tuple(getattr(botocore_errors, name) for name in _BY_THEIR_NAMES if hasattr(botocore_errors, name))

_GIVE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or give the machine a role; "
    "`aws sts get-caller-identity` shows what is found"
)

#: What botocore repeats of a parameter that it does not take; it may be a job's.
_VALUE = re.compile(r", value: .*?(?=, type: |, valid |$)")


def is_refusal(error: Exception) -> bool:
    """Whether AWS refuses for good what it was asked for, and only that: neither is it away, nor is it us whom it does
    not know, nor is a queue or a table missing."""
    if isinstance(error, DeniedError):
        return error.code in _DENIED
    if isinstance(error, AWSError):
        return not isinstance(error, MissingError) and error.code not in _OURS
    return isinstance(error, EnqueueError)


def is_transient(code: str) -> bool:
    """Whether an entry of a batch that failed with this code may be taken another time."""
    return code in _THROTTLED or code in _AWAY


def explain(error: Exception, place: str, action: str) -> BrokerError:
    """The error that Laneway raises for one of botocore's; `action` is what was called, such as sqs:SendMessage."""
    if isinstance(error, botocore_errors.ClientError):
        return _answered(error.response, place, action)
    about = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, _NO_CREDENTIALS):
        return DeniedError(f"There are no AWS credentials for {place}; {_GIVE} ({about}).", code=type(error).__name__)
    if isinstance(error, _UNFETCHED):
        return BrokerAwayError(
            f"The AWS credentials for {place} could not be fetched; sign in again, or {_GIVE} ({about})."
        )
    if isinstance(error, botocore_errors.NoRegionError):
        return AWSError(
            "No AWS region is set; give the URL region=…, or set AWS_REGION or the region of the AWS profile.",
            code="NoRegionError",
        )
    if isinstance(error, botocore_errors.SSLError):
        return AWSError(
            f"{place} has no certificate that is trusted here; set AWS_CA_BUNDLE to that of its issuer ({about}).",
            code="SSLError",
        )
    if isinstance(error, (botocore_errors.ConnectionError, botocore_errors.HTTPClientError, OSError)):
        return BrokerAwayError(f"{place} is away; see that it can be reached from here ({about}).")
    if type(error).__name__ == "ResponseParserError":  # half an answer, or that of a proxy
        return BrokerAwayError(f"{place} gave an answer that is none of AWS's; see what stands before it ({about}).")
    if isinstance(error, botocore_errors.ParamValidationError):
        about = _VALUE.sub("", about)
    return AWSError(f"{place} could not be asked for {action}: {about}.", code=type(error).__name__)


def _answered(response: Any, place: str, action: str) -> BrokerError:
    """The error for an answer that is one."""
    told = response.get("Error") or {}
    code = str(told.get("Code") or "").rpartition("#")[2]
    status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
    about = ": ".join(filter(None, [code, " ".join(str(told.get("Message") or "").split()).rstrip(".")]))
    if code in _MISSING:
        what = "topic or subscription" if action.startswith("sns:") else "queue or table"
        kind = MissingQueueError if code in _NO_QUEUE else MissingError
        return kind(f"{place} has no such {what}; create it with `laneway aws create` ({about}).", code=code)
    if code == "ConditionalCheckFailedException":
        return ConditionError(f"{place} did not write, because its condition does not hold ({about}).", code=code)
    if code in _THROTTLED or status == 429:
        return BrokerAwayError(
            f"{place} is asked more often than it allows, and {action} was not carried out; it goes on more slowly, "
            f"or raise its quota ({about})."
        )
    if code in _OVER_LIMIT:
        return BrokerAwayError(
            f"{place} hands out no more of a queue until some of what runs is done; run fewer workers ({about})."
        )
    if code in _AWAY or status >= 500:
        return BrokerAwayError(f"{place} is not well, and {action} was not carried out ({about or status}).")
    if code in _DENIED:
        return DeniedError(
            f"{place} forbids these credentials {action}; give them what `laneway aws iam` prints ({about}).", code=code
        )
    if code in _EXPIRED:
        return DeniedError(
            f"The AWS credentials for {place} have expired; sign in again, or {_GIVE} ({code}).", code=code
        )
    if code in _UNKNOWN:
        return DeniedError(f"{place} does not know these credentials; {_GIVE} ({code}).", code=code)
    if code in _CLOCK:
        return DeniedError(
            f"{place} does not accept the signature of {action}; see that the secret key is right and that this "
            f"machine's clock is ({code}).",
            code=code,
        )
    if code.endswith(("BatchRequestTooLong", "MessageTooLong")):
        return AWSError(
            f"{place} takes no such large messages; raise the queue's MaximumMessageSize, or give the URL a smaller "
            f"max_body ({about}).",
            code=code,
        )
    return AWSError(f"{place} refused {action}: {about or status}.", code=code)
