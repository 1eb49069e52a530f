"""RowClient: the requests of one DynamoDB table. Expressions: composes the expressions of a request.

It gives no meaning to rows: `delayed_jobs`, `retry_state`, `job_history`, `workers`, `queues` and `locks` do. A row
is a dict of plain values. A number is read as Decimal, digit by digit as it is stored. Conditions are those of
`boto3.dynamodb.conditions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder, Key
from boto3.dynamodb.types import TypeSerializer

from ....errors import BrokerAwayError
from ..errors import ConditionError, MissingError

if TYPE_CHECKING:
    from ..account import Account

Row = dict[str, Any]
#: The hash key and the range key of a row: `scheduler` and `job_id`.
RowKey = tuple[str, str]
_Attribute = dict[str, Any]
_Item = dict[str, _Attribute]

#: The range of numbers that DynamoDB can store. That of floats is wider.
_LARGEST = 9e125
_SMALLEST = 1e-129

_serialize = TypeSerializer().serialize


def _attribute_of(value: Any) -> _Attribute:
    """A value as DynamoDB takes it. boto3's serializer takes no float, and no number with more than 38 digits, such as
    the 9e125 that DynamoDB itself spells out. A float out of range becomes the nearest number in range."""
    match value:
        case float():
            value = max(-_LARGEST, min(_LARGEST, value))
            return {"N": repr(value) if abs(value) >= _SMALLEST else "0"}
        case Decimal():
            return {"N": str(value)}
    attribute: _Attribute = _serialize(value)
    return attribute


def _value_of(attribute: _Attribute) -> Any:
    """What an attribute holds. boto3's deserializer raises for numbers with more than 38 digits, and wraps bytes in a
    class that SQS does not take."""
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            return Decimal(value)
        case "NS":
            return [Decimal(each) for each in value]
        case "M":
            return _row_of(value)
        case "L":
            return [_value_of(each) for each in value]
        case "NULL":
            return None
        case _:
            return value


def _item_of(row: Row) -> _Item:
    return {name: _attribute_of(value) for name, value in row.items()}


def _row_of(item: _Item) -> Row:
    return {name: _value_of(value) for name, value in item.items()}


def _key_item(key: RowKey) -> _Item:
    return {"scheduler": {"S": key[0]}, "job_id": {"S": key[1]}}


class Expressions:
    """Composes the expressions of one request, with placeholders for all names and values in them."""

    def __init__(self) -> None:
        self._builder = ConditionExpressionBuilder()
        self._clauses: list[str] = []
        self._params: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._values: _Item = {}

    def set(self, **values: Any) -> Expressions:
        """Set attributes. A name such as `a.b` means the part `b` of the map `a`."""
        self._clauses.append("SET " + ", ".join(f"{self._path(name)} = {self._value(values[name])}" for name in values))
        return self

    def add(self, **values: Any) -> Expressions:
        """Add to numbers and to sets."""
        self._clauses.append("ADD " + ", ".join(f"{self._path(name)} {self._value(values[name])}" for name in values))
        return self

    def remove(self, *names: str) -> Expressions:
        """Remove attributes."""
        self._clauses.append("REMOVE " + ", ".join(map(self._path, names)))
        return self

    def when(self, condition: ConditionBase, param: str = "ConditionExpression") -> Expressions:
        """Write only if this holds. As a KeyConditionExpression: read the rows for which it holds."""
        built = self._builder.build_expression(condition)
        self._params[param] = built.condition_expression
        self._names |= built.attribute_name_placeholders
        self._values |= _item_of(built.attribute_value_placeholders)
        return self

    def params(self) -> dict[str, Any]:
        """The parameters of the request."""
        params = self._params | {"ExpressionAttributeNames": self._names}
        if self._clauses:
            params["UpdateExpression"] = " ".join(self._clauses)
        if self._values:
            params["ExpressionAttributeValues"] = self._values
        return params

    # boto3's builder takes the placeholders #n0 and :v0, and those that follow.

    def _path(self, name: str) -> str:
        placeholders = {f"#p{len(self._names) + n}": part for n, part in enumerate(name.split("."))}
        self._names |= placeholders
        return ".".join(placeholders)

    def _value(self, value: Any) -> str:
        placeholder = f":p{len(self._values)}"
        self._values[placeholder] = _attribute_of(value)
        return placeholder


#: The most that DynamoDB takes in one request.
_WRITES = 25
_READS = 100
#: Seconds between the tries for what a request left undone.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

_Request = dict[str, Any]


class RowClient:
    """The requests of one table. A missing table is looked for again when it is next needed."""

    def __init__(self, account: Account, name: str, *, has_local_index: bool = True) -> None:
        """A global index cannot be read consistently; a local one can."""
        self.name = name
        self._account = account
        self._has_local_index = has_local_index

    # -- reading ---------------------------------------------------------------------------------------

    def get(self, key: RowKey) -> Row | None:
        """One row, as it is now."""
        found = self._ask("get_item", TableName=self.name, Key=_key_item(key), ConsistentRead=True).get("Item")
        return None if found is None else _row_of(found)

    def get_all(self, keys: Iterable[RowKey]) -> Iterator[Row]:
        """Those of these rows that exist."""
        rest = [_key_item(key) for key in keys]
        for start in range(0, len(rest), _READS):
            asked: dict[str, Any] = {"Keys": rest[start : start + _READS], "ConsistentRead": True}
            for pause_s in (*_PAUSES_S, None):
                answer = self._ask("batch_get_item", RequestItems={self.name: asked})
                yield from map(_row_of, answer.get("Responses", {}).get(self.name, ()))
                asked = answer.get("UnprocessedKeys", {}).get(self.name, {})
                if not asked:
                    break
                self._pause(pause_s, f"{len(asked['Keys'])} items were not read")

    def query(self, partition: str, also: ConditionBase | None = None, *, index: str = "") -> Iterator[Row]:
        """The rows with this hash key, in order of the range key, all pages. `also` is a condition on the range key."""
        condition = Key("scheduler").eq(partition)
        if also is not None:
            condition &= also
        params = Expressions().when(condition, "KeyConditionExpression").params()
        if index:
            params["IndexName"] = index
        params["ConsistentRead"] = self._has_local_index or not index
        while True:
            answer = self._ask("query", TableName=self.name, **params)
            yield from map(_row_of, answer["Items"])
            if not answer.get("LastEvaluatedKey"):
                return
            params["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    # -- one row ---------------------------------------------------------------------------------------

    def put(self, row: Row) -> None:
        self._ask("put_item", TableName=self.name, Item=_item_of(row))

    def update(self, key: RowKey, expressions: Expressions) -> bool:
        """Change a row, or create it. False: the condition does not hold."""
        return self._write("update_item", key, expressions.params())

    def delete(self, key: RowKey, when: ConditionBase | None = None) -> bool:
        """Delete a row, if it exists. False: the condition does not hold."""
        return self._write("delete_item", key, {} if when is None else Expressions().when(when).params())

    def _write(self, operation: str, key: RowKey, params: dict[str, Any]) -> bool:
        try:
            self._ask(operation, TableName=self.name, Key=_key_item(key), **params)
        except ConditionError:
            return False
        return True

    # -- many rows -------------------------------------------------------------------------------------

    def put_all(self, rows: Iterable[Row], describe: Callable[[list[str]], str]) -> None:
        """Put rows, 25 per request. If that fails midway, the error says what `describe` makes of the ids of the rows
        that were not written."""
        self._write_all([{"PutRequest": {"Item": _item_of(row)}} for row in rows], describe)

    def delete_all(self, keys: Iterable[RowKey], describe: Callable[[list[str]], str]) -> None:
        """Delete rows, 25 per request. `describe` as for `put_all`."""
        self._write_all([{"DeleteRequest": {"Key": _key_item(key)}} for key in keys], describe)

    def _write_all(self, requests: Sequence[_Request], describe: Callable[[list[str]], str]) -> None:
        for start in range(0, len(requests), _WRITES):
            part, rest = requests[start : start + _WRITES], requests[start + _WRITES :]
            for pause_s in (*_PAUSES_S, None):
                try:
                    answer = self._ask("batch_write_item", RequestItems={self.name: part})
                except BrokerAwayError as error:
                    raise BrokerAwayError(f"{error} {describe(_ids_of([*part, *rest]))}") from error
                part = answer.get("UnprocessedItems", {}).get(self.name, [])
                if not part:
                    break
                self._pause(pause_s, describe(_ids_of([*part, *rest])))

    # -- requests --------------------------------------------------------------------------------------

    def _pause(self, pause_s: float | None, problem: str) -> None:
        """Wait before the next try, or give up."""
        if pause_s is None:
            raise BrokerAwayError(f"DynamoDB's table {self.name} is asked for more than it allows: {problem}")
        time.sleep(pause_s)

    def _ask(self, operation: str, **params: Any) -> dict[str, Any]:
        try:
            return self._account.clients.dynamodb(operation, **params)
        except MissingError:
            self._account.tables.forget(self.name)
            raise


def _ids_of(requests: list[_Request]) -> list[str]:
    """The range keys of the rows that these requests put or delete."""
    rows = [
        request["PutRequest"]["Item"] if "PutRequest" in request else request["DeleteRequest"]["Key"]
        for request in requests
    ]
    return [row["job_id"]["S"] for row in rows]
