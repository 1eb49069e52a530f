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
    """AWS answered, and refused the request."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        #: The error code of AWS.
        self.code = code


class MissingError(AWSError):
    """The queue, topic or table does not exist."""


class MissingQueueError(MissingError, NoQueueError):
    """A queue does not exist. Other queues may."""


class ConditionError(AWSError):
    """A conditional write was not carried out, because its condition does not hold."""


class BatchRefusedError(AWSError):
    """AWS refused some or all entries of a batch because the entries are wrong. A repeat does not help."""

    def __init__(self, message: str, *, code: str = "", entries: Sequence[int] = (), service: str = "SQS") -> None:
        super().__init__(message, code=code)
        self.service = service
        #: The numbers of the wrong entries, from 0.
        self.entries = list(entries)


class DeniedError(AWSError):
    """The credentials do not allow this, or AWS does not know them, or there are none."""


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
#: After these a later repeat may succeed. botocore has already repeated the request without success.
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

#: The cause is on our side, and no request can be made.
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
#: Credentials could not be fetched. Older versions of botocore do not have all of these errors.
_UNFETCHED = tuple(getattr(botocore_errors, name) for name in _BY_THEIR_NAMES if hasattr(botocore_errors, name))

_GIVE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE), or give the machine a role; "
    "`aws sts get-caller-identity` shows what is found"
)

#: The value that botocore quotes when it rejects a parameter. It may be a job's data.
_VALUE = re.compile(r", value: .*?(?=, type: |, valid |$)")


def is_refusal(error: Exception) -> bool:
    """Whether AWS refuses this one request for good. False if AWS is away, if it does not know the credentials, and if
    a queue or a table is missing."""
    if isinstance(error, DeniedError):
        return error.code in _DENIED
    if isinstance(error, AWSError):
        return not isinstance(error, MissingError) and error.code not in _OURS
    return isinstance(error, EnqueueError)


def is_transient(code: str) -> bool:
    """Whether an entry of a batch that failed with this code may succeed later."""
    return code in _THROTTLED or code in _AWAY


def explain(error: Exception, place: str, action: str) -> BrokerError:
    """The Laneway error for an error of botocore. `action` is the request, such as sqs:SendMessage."""
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
    if type(error).__name__ == "ResponseParserError":  # a truncated answer, or that of a proxy
        return BrokerAwayError(f"{place} gave an answer that is none of AWS's; see what stands before it ({about}).")
    if isinstance(error, botocore_errors.ParamValidationError):
        about = _VALUE.sub("", about)
    return AWSError(f"{place} could not be asked for {action}: {about}.", code=type(error).__name__)


def _answered(response: Any, place: str, action: str) -> BrokerError:
    """The Laneway error for an error response of AWS."""
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
