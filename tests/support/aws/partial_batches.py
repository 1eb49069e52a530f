"""Makes some entries of a batch fail: removes them from the request and adds their failures to the response.

The server never sees the removed entries, so the failed entries are really not carried out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

_WRITES, _GETS = "BatchWriteItem", "BatchGetItem"
_OF_SQS = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")
#: SNS's, which is not in JSON: see protocols.py.
PUBLISH, PUBLISHED = "PublishBatch", "PublishBatchRequestEntries"


@dataclass(frozen=True, slots=True)
class Partly:
    """Some entries of a batch fail: those at these places (0 is the first), or a share of them, at least one.

    DynamoDB calls them unprocessed; in SQS and SNS they failed by the sender's fault, or not.
    """

    entries: Collection[int] = (0,)
    share: float | None = None
    sender_fault: bool = False
    code: str = "InternalError"
    chance: Random = field(default_factory=lambda: Random(0), repr=False, compare=False)

    def fits(self, operation: str) -> bool:
        return operation in (_WRITES, _GETS, PUBLISH, *_OF_SQS)

    def told(self, failed: list[Any]) -> list[dict[str, Any]]:
        """What the answer says of the entries that failed."""
        told = {"SenderFault": self.sender_fault, "Code": self.code, "Message": "The proxy took it out."}
        return [{"Id": entry["Id"], **told} for entry in failed]

    def places(self, count: int) -> set[int]:
        if self.share is None:
            return {place for place in self.entries if place < count}
        return {place for place in range(count) if self.chance.random() < self.share} or {self.chance.randrange(count)}


def strip(operation: str, params: dict[str, Any], fault: Partly) -> tuple[dict[str, Any] | None, list[Any]]:
    """The request without some entries (None: nothing is left of it), and those entries."""
    if operation in _OF_SQS:
        entries = params["Entries"]
        places = fault.places(len(entries))
        kept = [entry for place, entry in enumerate(entries) if place not in places]
        return {**params, "Entries": kept} if kept else None, [entries[place] for place in sorted(places)]
    flat = [
        (table, entry)
        for table, asked in params["RequestItems"].items()
        for entry in (asked if operation == _WRITES else asked["Keys"])
    ]
    places = fault.places(len(flat))
    left: dict[str, Any] = {}
    failed: list[tuple[str, Any, Any]] = []
    for place, (table, entry) in enumerate(flat):
        asked = params["RequestItems"][table]
        more = {} if operation == _WRITES else {name: value for name, value in asked.items() if name != "Keys"}
        if place in places:
            failed.append((table, entry, more))
        else:
            _add(left, operation, table, entry, more)
    return {**params, "RequestItems": left} if left else None, failed


def finish(operation: str, answer: dict[str, Any], failed: list[Any], fault: Partly) -> dict[str, Any]:
    """The answer to what was left of a request, and the entries that failed."""
    if operation in _OF_SQS:
        return {"Successful": [], **answer, "Failed": [*answer.get("Failed", []), *fault.told(failed)]}
    name = "UnprocessedItems" if operation == _WRITES else "UnprocessedKeys"
    unprocessed: dict[str, Any] = dict(answer.get(name) or {})
    for table, entry, more in failed:
        _add(unprocessed, operation, table, entry, more)
    return {**({"Responses": {}} if operation == _GETS else {}), **answer, name: unprocessed}


def _add(asked: dict[str, Any], operation: str, table: str, entry: Any, more: dict[str, Any]) -> None:
    if operation == _WRITES:
        asked.setdefault(table, []).append(entry)
    else:
        asked.setdefault(table, {**more, "Keys": []})["Keys"].append(entry)
