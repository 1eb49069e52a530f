"""TableClient: the requests of one DynamoDB table, repeated until a batch is done; and DynamoDB values.

It gives no meaning to rows or attributes: `delayed_jobs`, `retry_state`, `workers` and `job_history` do. DynamoDB
sends numbers as text of up to 38 digits. They are read as Decimal, so that third-party numbers stay unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ....clock import Clock
from ....errors import BrokerAwayError
from ..clients import Clients
from ..errors import ConditionError, MissingError
from ..settings import AWSSettings

Attribute = dict[str, Any]
Item = dict[str, Attribute]

#: What DynamoDB takes of numbers; a float may be larger and smaller.
_LARGEST = 9e125
_SMALLEST = 1e-129


def number(value: float) -> Attribute:
    """A number as an attribute. One that DynamoDB has no room for becomes the nearest that it has."""
    value = max(-_LARGEST, min(_LARGEST, value))
    return {"N": repr(0.0 if abs(value) < _SMALLEST else value)}


def attribute(value: Any) -> Attribute:
    """A text, number, bytes, bool, None, list or dict as an attribute."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return number(value)
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {name: attribute(each) for name, each in value.items()}}
        case _:
            return {"L": [attribute(each) for each in value]}


def value(attribute: Attribute) -> Any:
    """What an attribute holds; numbers as Decimal, sets as lists."""
    ((kind, held),) = attribute.items()
    match kind:
        case "N":
            return Decimal(held)
        case "NULL":
            return None
        case "M":
            return {name: value(each) for name, each in held.items()}
        case "L":
            return [value(each) for each in held]
        case "NS":
            return [Decimal(each) for each in held]
        case _:
            return held


def text(item: Item, name: str) -> str:
    """A text of an item; empty if it has none of that name."""
    held = item.get(name, {}).get("S", "")
    return held if isinstance(held, str) else ""


def real(item: Item, name: str) -> float:
    """A number of an item; 0 if it has none of that name."""
    return float(item.get(name, {}).get("N", 0.0))


def size(attribute: Attribute) -> int:
    """The bytes of an attribute's value as DynamoDB counts them, or a few more."""
    ((kind, held),) = attribute.items()
    match kind:
        case "S":
            return len(held.encode())
        case "N":
            return len(held) // 2 + 2
        case "B":
            return len(held)
        case "M":
            return 3 + sum(1 + len(name.encode()) + size(each) for name, each in held.items())
        case "L":
            return 3 + sum(1 + size(each) for each in held)
        case _:
            return 1


#: What DynamoDB takes in one request.
_WRITES = 25
_READS = 100
#: Seconds between the tries for what it left undone.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

Request = dict[str, Any]


class TableClient:
    """The requests of one table."""

    def __init__(
        self,
        name: str,
        clients: Clients,
        settings: AWSSettings,
        clock: Clock,
        *,
        home: str = "",
        consistent: bool = True,
        on_missing: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        #: The queue whose table it is; empty for one that several share.
        self.home = home
        self.clock = clock
        self._clients = clients
        self.settings = settings
        #: Whether its index answers with what was written just now, if asked to.
        self.consistent = consistent
        self._on_missing = on_missing

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Make a request of this table."""
        return self._ask(operation, TableName=self.name, **params)

    def write_if(self, operation: str, condition: str, **params: Any) -> dict[str, Any] | None:
        """Make a conditional write; None if its condition does not hold."""
        try:
            return self.call(operation, ConditionExpression=condition, **params)
        except ConditionError:
            return None

    def item(self, scheduler: str, job_id: str) -> Item | None:
        """One row, as it is now."""
        item: Item | None = self.call("get_item", Key=key(scheduler, job_id), ConsistentRead=True).get("Item")
        return item

    def items(self, keys: Sequence[Item]) -> Iterator[Item]:
        """Those of these rows that there are."""
        for start in range(0, len(keys), _READS):
            asked = {"Keys": list(keys[start : start + _READS]), "ConsistentRead": True}
            for pause_s in (*_PAUSES_S, None):
                answer = self._ask("batch_get_item", RequestItems={self.name: asked})
                yield from answer.get("Responses", {}).get(self.name, ())
                asked = answer.get("UnprocessedKeys", {}).get(self.name, {})
                if not asked:
                    break
                self._pause(pause_s, f"{len(asked['Keys'])} items were not read")

    def query(self, **params: Any) -> Iterator[dict[str, Any]]:
        """The answers to a query, page by page."""
        while True:
            answer = self.call("query", **params)
            yield answer
            last = answer.get("LastEvaluatedKey")
            if not last:
                return
            params["ExclusiveStartKey"] = last

    def write(self, requests: Sequence[Request], describe: Callable[[list[Request]], str]) -> None:
        """Put and delete rows. `describe` names what was not written, if DynamoDB does not get it done."""
        for start in range(0, len(requests), _WRITES):
            part = list(requests[start : start + _WRITES])
            rest = list(requests[start + _WRITES :])
            for pause_s in (*_PAUSES_S, None):
                try:
                    answer = self._ask("batch_write_item", RequestItems={self.name: part})
                except BrokerAwayError as error:
                    raise BrokerAwayError(f"{error} {describe(part + rest)}") from error
                part = answer.get("UnprocessedItems", {}).get(self.name, [])
                if not part:
                    break
                self._pause(pause_s, describe(part + rest))

    def _pause(self, pause_s: float | None, problem: str) -> None:
        """Wait before the next try, or give up."""
        if pause_s is None:
            raise BrokerAwayError(f"DynamoDB's table {self.name} is asked for more than it allows: {problem}")
        time.sleep(pause_s)

    def _ask(self, operation: str, **params: Any) -> dict[str, Any]:
        try:
            return self._clients.dynamodb(operation, **params)
        except MissingError:
            self._on_missing()
            raise


def key(scheduler: str, job_id: str) -> Item:
    """The key of a row."""
    return {"scheduler": {"S": scheduler}, "job_id": {"S": job_id}}
