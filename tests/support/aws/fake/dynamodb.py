"""The operations of DynamoDB: parameters in, responses out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from tests.support.aws.fake import expressions
from tests.support.aws.fake.expression_parser import Names
from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.tables import MAX_PAGE, Order, Table, bounds
from tests.support.aws.fake.values import Item, invalid, normal, size, sortable

Params = dict[str, Any]

_LEGACY = {"Expected", "AttributeUpdates", "KeyConditions", "QueryFilter", "ScanFilter", "ConditionalOperator"}
_MAX_WRITES, _MAX_GETS = 25, 100


class DynamoDB:
    """All tables of one account in one region."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.tables: dict[str, Table] = {}
        #: How many items a page looks at, at most; None: as many as fit into a megabyte.
        self.page_items: int | None = None

    # -- tables ----------------------------------------------------------------------------------------

    def create_table(self, params: Params, host: str) -> Params:
        if params["TableName"] in self.tables:
            raise Refusal("ResourceInUseException", f"Table already exists: {params['TableName']}")
        if "GlobalSecondaryIndexes" in params:
            raise invalid("This fake has no global secondary indexes.")
        table = self.tables[params["TableName"]] = Table(params, self._now())
        return {"TableDescription": _described(table) | {"TableStatus": "CREATING"}}

    def describe_table(self, params: Params, host: str) -> Params:
        return {"Table": _described(self._table(params))}

    def delete_table(self, params: Params, host: str) -> Params:
        table = self._table(params)
        del self.tables[table.name]
        return {"TableDescription": _described(table) | {"TableStatus": "DELETING"}}

    def update_time_to_live(self, params: Params, host: str) -> Params:
        table, wanted = self._table(params), params["TimeToLiveSpecification"]
        if wanted["Enabled"] == (table.ttl_attribute is not None):
            raise invalid(f"TimeToLive is already {'enabled' if wanted['Enabled'] else 'disabled'}")
        table.ttl_attribute = wanted["AttributeName"] if wanted["Enabled"] else None
        return {"TimeToLiveSpecification": wanted}

    def describe_time_to_live(self, params: Params, host: str) -> Params:
        """AWS deletes what has expired within days, and this fake never: until it happens, both show it."""
        if (attribute := self._table(params).ttl_attribute) is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}

    # -- items -----------------------------------------------------------------------------------------

    def put_item(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        condition = expressions.condition(params, "ConditionExpression", names)
        names.check_used()
        item = table.check_item(params["Item"])
        old = table.get(item)
        _check(condition, old, params)
        table.put(item)
        return _returned(params, old, None, set(), ("NONE", "ALL_OLD"))

    def get_item(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        item = table.get(table.check_key(params["Key"]))
        found = expressions.project([item or {}], params, names)
        names.check_used()
        return {"Item": found[0]} if item is not None else {}

    def update_item(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        condition = expressions.condition(params, "ConditionExpression", names)
        update = expressions.update(params, names, table.keys) if "UpdateExpression" in params else None
        names.check_used()
        key = table.check_key(params["Key"])
        old = table.get(key)
        _check(condition, old, params)
        new, touched = update(old or key) if update else (dict(old or key), set())
        new = table.check_item(new)
        table.put(new)
        return _returned(params, old, new, touched, ("NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"))

    def delete_item(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        condition = expressions.condition(params, "ConditionExpression", names)
        names.check_used()
        old = table.get(table.check_key(params["Key"]))
        _check(condition, old, params)
        if old is not None:
            table.remove(old)
        return _returned(params, old, None, set(), ("NONE", "ALL_OLD"))

    # -- many items ------------------------------------------------------------------------------------

    def query(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        index = params.get("IndexName")
        if index is not None and index not in table.orders:
            raise invalid(f"The table does not have the specified index: {index}")
        order = table.orders[index]
        if "KeyConditionExpression" not in params:
            raise invalid(
                "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request."
            )
        keys = expressions.key_condition(params, names)
        hash_condition = keys.pop(table.hash, None)
        if hash_condition is None or hash_condition[0] != "=":
            raise invalid(f"Query condition missed key schema element: {table.hash}")
        if keys.keys() - {order.attribute}:
            raise invalid(f"Query condition missed key schema element: {order.attribute}")
        operator, operands = keys.get(order.attribute or "", ("", []))
        if any(order.kind not in operand for operand in operands):
            message = "Condition parameter type does not match schema type"
            raise invalid(f"One or more parameter values were invalid: {message}")
        low, high = bounds(operator, operands) if operator else (None, None)
        if operator == "between" and low > high:
            raise invalid("Invalid KeyConditionExpression: The BETWEEN operator requires upper bound to be greater")
        start = params.get("ExclusiveStartKey")
        after = order.place({name: normal(value) for name, value in start.items()}) if start else None
        hash_value, forward = sortable(normal(hash_condition[1][0])), params.get("ScanIndexForward", True)
        found = order.walk(hash_value, low, high, after, forward=forward)
        if operator in ("<", ">", "begins_with"):
            found = _narrowed(found, order, operator, sortable(operands[0]))
        return self._page(table, index, found, params, names)

    def scan(self, params: Params, host: str) -> Params:
        table, names = self._begin(params)
        if "IndexName" in params:
            raise invalid("This fake scans tables only.")
        order, hashes, start = table.orders[None], table.orders[None].hashes(), params.get("ExclusiveStartKey")
        after = None
        if start:
            after, first = order.place(start), sortable(start[table.hash])
            hashes = [each for each in hashes if each >= first]
            after = after if hashes and hashes[0] == first else None
        if "TotalSegments" in params:
            total, segment = params["TotalSegments"], params["Segment"]
            hashes = [each for each in hashes if hash(each) % total == segment]
        walks = (order.walk(each, None, None, after if i == 0 else None, forward=True) for i, each in enumerate(hashes))
        return self._page(table, None, chain.from_iterable(walks), params, names)

    def batch_write_item(self, params: Params, host: str) -> Params:
        asked = [(self._table_named(name), each) for name, many in params["RequestItems"].items() for each in many]
        if not 1 <= len(asked) <= _MAX_WRITES:
            raise invalid("1 validation error detected: Too many items requested for the BatchWriteItem call")
        puts: list[tuple[Table, Item | None, Item]] = []
        for table, request in asked:
            if "PutRequest" in request:
                item = table.check_item(request["PutRequest"]["Item"])
                puts.append((table, item, table.key_of(item)))
            else:
                puts.append((table, None, table.check_key(request["DeleteRequest"]["Key"])))
        _check_distinct([(table.name, key) for table, _, key in puts])
        for table, put, key in puts:
            if put is not None:
                table.put(put)
            elif (old := table.get(key)) is not None:
                table.remove(old)
        return {"UnprocessedItems": {}}

    def batch_get_item(self, params: Params, host: str) -> Params:
        asked = params["RequestItems"]
        if not 1 <= sum(len(each["Keys"]) for each in asked.values()) <= _MAX_GETS:
            raise invalid("1 validation error detected: Too many items requested for the BatchGetItem call")
        answer: dict[str, list[Item]] = {}
        for name, each in asked.items():
            table, names = self._table_named(name), Names(each)
            keys = [table.check_key(key) for key in each["Keys"]]
            _check_distinct([(name, key) for key in keys])
            found = [item for key in keys if (item := table.get(key)) is not None]
            answer[name] = expressions.project(found, each, names)
            names.check_used()
        return {"Responses": answer, "UnprocessedKeys": {}}

    # -- inside ----------------------------------------------------------------------------------------

    def _begin(self, params: Params) -> tuple[Table, Names]:
        if legacy := params.keys() & _LEGACY:
            raise invalid(f"This fake knows expressions only, not {', '.join(sorted(legacy))}.")
        names = Names(params)
        names.values = {name: normal(value) for name, value in names.values.items()}
        return self._table(params), names

    def _table(self, params: Params) -> Table:
        return self._table_named(params["TableName"])

    def _table_named(self, name: str) -> Table:
        if name not in self.tables:
            raise Refusal("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        return self.tables[name]

    def _page(self, table: Table, index: str | None, found: Iterator[Item], params: Params, names: Names) -> Params:
        """Look at items until the limit, the size of a page, or the end; the filter comes after."""
        condition = expressions.condition(params, "FilterExpression", names)
        expressions.project([], params, names)
        names.check_used()
        limit, bytes_ = params.get("Limit"), 0
        if limit is not None and limit < 1:
            raise invalid("1 validation error detected: Value at 'limit' failed to satisfy constraint: at least 1")
        most = min((each for each in (limit, self.page_items) if each is not None), default=None)
        looked: list[Item] = []
        answer: Params = {}
        for item in found:
            looked.append(item)
            bytes_ += size(item)
            # Where a page ends there is a key to go on from, also if nothing comes after it.
            if len(looked) == most or bytes_ > MAX_PAGE:
                answer["LastEvaluatedKey"] = table.key_of(item, index)
                break
        shown = [item for item in looked if condition is None or condition(item)]
        answer |= {"Count": len(shown), "ScannedCount": len(looked)}
        if params.get("Select") != "COUNT":
            answer["Items"] = expressions.project(shown, params, names)
        return answer


def _narrowed(found: Iterator[Item], order: Order, operator: str, value: Any) -> Iterator[Item]:
    """Without the bound itself, or only what begins with it."""
    assert order.attribute is not None
    for item in found:
        own = sortable(item[order.attribute])
        if own.startswith(value) if operator == "begins_with" else own != value:
            yield item


def _check(condition: Callable[[Item], bool] | None, old: Item | None, params: Params) -> None:
    if condition is not None and not condition(old or {}):
        wanted = params.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and old is not None
        more: dict[str, Any] = {"Item": old} if wanted else {}
        raise Refusal("ConditionalCheckFailedException", "The conditional request failed", 400, **more)


def _returned(
    params: Params, old: Item | None, new: Item | None, touched: set[str], allowed: tuple[str, ...]
) -> Params:
    wanted = params.get("ReturnValues", "NONE")
    if wanted not in allowed:
        raise invalid(f"Return values set to invalid value: {wanted}")
    item = old if wanted.endswith("OLD") else new
    if wanted == "NONE" or item is None:
        return {}
    return {"Attributes": item if wanted.startswith("ALL") else {n: v for n, v in item.items() if n in touched}}


def _check_distinct(keys: list[tuple[str, Item]]) -> None:
    if len({repr((name, sorted(key.items()))) for name, key in keys}) != len(keys):
        raise invalid("Provided list of item keys contains duplicates")


def _described(table: Table) -> Params:
    told = {k: v for k, v in table.described.items() if k in ("TableName", "KeySchema", "AttributeDefinitions")}
    arn = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table.name}"
    told |= {"TableStatus": "ACTIVE", "TableArn": arn, "CreationDateTime": table.created_at}
    told |= {"ItemCount": len(table.items()), "TableSizeBytes": 0, "TableId": str(uuid.uuid5(uuid.NAMESPACE_URL, arn))}
    if indexes := table.described.get("LocalSecondaryIndexes"):
        told["LocalSecondaryIndexes"] = [each | {"IndexArn": f"{arn}/index/{each['IndexName']}"} for each in indexes]
    if table.described.get("BillingMode") == "PAY_PER_REQUEST":
        told["BillingModeSummary"] = {"BillingMode": "PAY_PER_REQUEST"}
    return told
