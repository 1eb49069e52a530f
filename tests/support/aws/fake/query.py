"""AWS's Query protocol, which SNS and STS use: forms in, XML out.

It encodes and decodes parameters and responses, and knows nothing of their meaning.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.http import response

#: By the version of the service that a form names.
SERVICES = {"2010-03-31": "sns", "2011-06-15": "sts"}
_NAMESPACES = {
    "sns": "http://sns.amazonaws.com/doc/2010-03-31/",
    "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
}

Pairs = list[tuple[str, str]]


def pairs(body: bytes) -> Pairs:
    return parse_qsl(body.decode(), keep_blank_values=True)


def read(form: Pairs) -> tuple[str, str, dict[str, Any]]:
    """The service, the operation and its parameters."""
    tree: dict[str, Any] = {}
    for path, value in form:
        *branches, leaf = path.split(".")
        place = tree
        for branch in branches:
            place = place.setdefault(branch, {})
        place[leaf] = value
    action, version = tree.pop("Action", ""), tree.pop("Version", "")
    return SERVICES.get(version, version), action, {name: _plain(value) for name, value in tree.items()}


def _plain(value: Any) -> Any:
    """Lists and maps as they were before they were numbered; what is empty is an empty text."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"member"}:
        return [_plain(each) for _, each in sorted(value["member"].items(), key=lambda item: int(item[0]))]
    if value.keys() == {"entry"}:
        entries = [each for _, each in sorted(value["entry"].items(), key=lambda item: int(item[0]))]
        names = ("Name", "Value") if "Name" in entries[0] else ("key", "value")
        return {each[names[0]]: _plain(each[names[1]]) for each in entries}
    return {name: _plain(each) for name, each in value.items()}


def without(form: Pairs, field: str, places: Collection[int]) -> Pairs | None:
    """A form that lacks some members of a list (0 is the first); None: it would have none."""
    prefix, numbers, left = f"{field}.member.", dict[str, int](), Pairs()
    for path, value in form:
        if not path.startswith(prefix):
            left.append((path, value))
            continue
        number, _, rest = path.removeprefix(prefix).partition(".")
        if int(number) - 1 not in places:
            left.append((f"{prefix}{numbers.setdefault(number, len(numbers) + 1)}.{rest}", value))
    return left if numbers else None


def document(service: str, operation: str, answer: dict[str, Any]) -> bytes:
    """The XML of an answer."""
    result = f"<{operation}Result>{_xml(answer)}</{operation}Result>"
    metadata = f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"
    name = f"{operation}Response"
    return f'<{name} xmlns="{_NAMESPACES[service]}">{result}{metadata}</{name}>'.encode()


def error(service: str, code: str, message: str, status: int) -> bytes:
    """The XML of an error."""
    told = {"Type": "Sender" if status < 500 else "Receiver", "Code": code, "Message": message}
    inner = f"<Error>{_xml(told)}</Error><RequestId>{uuid.uuid4()}</RequestId>"
    return f'<ErrorResponse xmlns="{_NAMESPACES.get(service, "")}">{inner}</ErrorResponse>'.encode()


def answered(service: str, operation: str, answer: dict[str, Any]) -> bytes:
    return response(document(service, operation, answer), 200, kind="text/xml")


def refused(service: str, refusal: Refusal) -> bytes:
    body = error(service, refusal.kind, refusal.message, refusal.status)
    return response(body, refusal.status, kind="text/xml")


def _xml(value: Any) -> str:
    match value:
        case dict():
            return "".join(f"<{name}>{_written(each)}</{name}>" for name, each in value.items() if each is not None)
        case list():
            return "".join(f"<member>{_xml(each)}</member>" for each in value)
        case bool():
            return str(value).lower()
    return escape(str(value), {"\r": "&#13;"})  # which XML would else read as the end of a line


class Map(dict[str, str]):
    """A dict that an answer writes as entries, and not as a structure with fields."""


def _written(value: Any) -> str:
    if isinstance(value, Map):
        return "".join(f"<entry>{_xml({'key': name, 'value': each})}</entry>" for name, each in value.items())
    return _xml(value)
