"""The proxy's knowledge of AWS's protocols: JSON (SQS, DynamoDB), and forms with XML responses (SNS, STS).

Decodes the operation of a request, writes error responses, and removes entries from a batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

from tests.support.aws import partial_batches
from tests.support.aws.fake import query
from tests.support.aws.partial_batches import PUBLISH, PUBLISHED, Partly

ERROR_500, ERROR_503, THROTTLED, REQUEST_THROTTLED = "error 500", "error 503", "throttled", "request throttled"
#: For each of these faults, what each service answers: a status and a code.
REFUSALS = {
    ERROR_500: {
        "sqs": (500, "InternalError"),
        "dynamodb": (500, "InternalServerError"),
        "sns": (500, "InternalError"),
        "sts": (500, "InternalFailure"),
    },
    ERROR_503: dict.fromkeys(("sqs", "dynamodb", "sns", "sts"), (503, "ServiceUnavailable")),
    THROTTLED: {
        "sqs": (400, "ThrottlingException"),
        "dynamodb": (400, "ProvisionedThroughputExceededException"),
        "sns": (400, "Throttling"),
        "sts": (400, "Throttling"),
    },
    REQUEST_THROTTLED: {
        "sqs": (403, "RequestThrottled"),
        "dynamodb": (400, "ThrottlingException"),
        "sns": (429, "Throttled"),
        "sts": (400, "ThrottlingException"),
    },
}
_TARGETS = {"AmazonSQS": "sqs", "DynamoDB_20120810": "dynamodb"}
_BY_FORMS = ("sns", "sts")

Fault = str | Partly


@dataclass(slots=True)
class Call:
    """A request that came by, and what became of it."""

    service: str
    operation: str
    params: dict[str, Any]
    fault: Fault | None = None

    @property
    def name(self) -> str:
        return f"{self.service}.{self.operation}"

    @property
    def answers_in(self) -> str:
        """The content type of an answer."""
        return "text/xml" if self.service in _BY_FORMS else "application/x-amz-json-1.0"


def call(headers: dict[str, str], body: bytes) -> Call:
    """What a request asks for; without a name if it is nothing of AWS's."""
    prefix, _, operation = headers.get("x-amz-target", "").partition(".")
    if prefix in _TARGETS:
        return Call(_TARGETS[prefix], operation, json.loads(body))
    if not prefix and body.startswith(b"Action="):
        service, operation, params = query.read(query.pairs(body))
        if service in _BY_FORMS:
            return Call(service, operation, params)
    return Call("", "", {})


def refusal(call: Call, fault: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer that refuses."""
    status, code = REFUSALS[fault][call.service]
    headers = {"Content-Type": call.answers_in}
    message = f"{code}, says the proxy."
    if call.service in _BY_FORMS:
        return status, query.error(call.service, code, message, status), headers
    if call.service == "sqs":
        headers["x-amzn-query-error"] = f"{code};{'Receiver' if status >= 500 else 'Sender'}"
    body = {"__type": f"com.amazonaws.{call.service}#{code}", "message": message}
    return status, json.dumps(body).encode(), headers


def strip(call: Call, body: bytes, fault: Partly) -> tuple[bytes | None, list[Any]]:
    """The body of a request without some entries (None: nothing is left of it), and those entries."""
    if call.operation == PUBLISH:
        entries = call.params[PUBLISHED]
        places = fault.places(len(entries))
        left = query.without(query.pairs(body), PUBLISHED, places)
        return None if left is None else urlencode(left).encode(), [entries[place] for place in sorted(places)]
    params, failed = partial_batches.strip(call.operation, call.params, fault)
    return None if params is None else json.dumps(params).encode(), failed


def finish(call: Call, content: bytes | None, failed: list[Any], fault: Partly) -> bytes:
    """The answer to what was left of a request, if anything was, and the entries that failed."""
    if call.operation != PUBLISH:
        answer = json.loads(content) if content is not None else {}
        return json.dumps(partial_batches.finish(call.operation, answer, failed, fault)).encode()
    if content is None:
        return query.document(call.service, PUBLISH, {"Successful": [], "Failed": fault.told(failed)})
    answer = ElementTree.fromstring(content)
    start = answer.tag.removesuffix(f"{PUBLISH}Response")  # the name of the namespace, in braces
    result = answer.find(f"{start}{PUBLISH}Result")
    assert result is not None, content
    list_of_them = result.find(f"{start}Failed")
    if list_of_them is None:
        list_of_them = ElementTree.SubElement(result, f"{start}Failed")
    for entry in fault.told(failed):
        member = ElementTree.SubElement(list_of_them, f"{start}member")
        for name, value in entry.items():
            ElementTree.SubElement(member, start + name).text = str(value).lower() if name == "SenderFault" else value
    return ElementTree.tostring(answer)
