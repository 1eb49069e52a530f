"""One DynamoDB table: items by key, in the order of the table's range key and of each local index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

from tests.support.aws.fake.values import Item, Value, invalid, normal, size, sortable

MAX_ITEM = 409_600
MAX_PAGE = 1_048_576


class Order:
    """The items of a table, by hash value and then by one attribute; ties by the table's own range key."""

    def __init__(self, attribute: str | None, table_range: str | None, kind: str | None) -> None:
        self.attribute, self._table_range, self.kind = attribute, table_range, kind
        #: For each hash value: (what is sorted by, the table's range key), item.
        self._keys: dict[Any, list[tuple[Any, Any]]] = {}
        self._items: dict[Any, dict[tuple[Any, Any], Item]] = {}

    def place(self, item: Item) -> tuple[Any, Any] | None:
        """Where it stands; None: nowhere, because it lacks the attribute."""
        if self.attribute is None:
            return (0, 0)
        if self.attribute not in item:
            return None
        own = sortable(item[self._table_range]) if self._table_range else 0
        return (sortable(item[self.attribute]), own)

    def add(self, hash_value: Any, item: Item) -> None:
        if (place := self.place(item)) is not None:
            items = self._items.setdefault(hash_value, {})
            if place not in items:
                insort(self._keys.setdefault(hash_value, []), place)
            items[place] = item

    def remove(self, hash_value: Any, item: Item) -> None:
        if (place := self.place(item)) is not None:
            keys = self._keys[hash_value]
            del keys[bisect_left(keys, place)]
            del self._items[hash_value][place]
            if not keys:
                del self._keys[hash_value], self._items[hash_value]

    def hashes(self) -> list[Any]:
        return sorted(self._keys)

    def walk(
        self, hash_value: Any, low: Any = None, high: Any = None, after: tuple[Any, Any] | None = None, *, forward: bool
    ) -> Iterator[Item]:
        """The items of a hash value from `low` to `high` (both included), beyond the place `after`."""
        keys, items = self._keys.get(hash_value, []), self._items.get(hash_value, {})
        first = 0 if low is None else bisect_left(keys, low, key=lambda place: place[0])
        last = len(keys) if high is None else bisect_right(keys, high, key=lambda place: place[0])
        if after is not None and forward:
            first = max(first, bisect_right(keys, after))
        if after is not None and not forward:
            last = min(last, bisect_left(keys, after))
        for number in range(first, last) if forward else range(last - 1, first - 1, -1):
            yield items[keys[number]]


class Table:
    """Keys, indexes and items. Conditions and updates are `dynamodb.py`'s."""

    def __init__(self, params: dict[str, Any], created_at: float) -> None:
        self.name: str = params["TableName"]
        self.described = params
        self.created_at = created_at
        self.ttl_attribute: str | None = None
        self._kinds = {each["AttributeName"]: each["AttributeType"] for each in params["AttributeDefinitions"]}
        self.hash, self.range = self._schema(params["KeySchema"])
        self.keys = {name for name in (self.hash, self.range) if name is not None}
        self.orders: dict[str | None, Order] = {None: self._order(self.range)}
        indexes = params.get("LocalSecondaryIndexes") or []
        for index in indexes:
            own_hash, attribute = self._schema(index["KeySchema"])
            if own_hash != self.hash or self.range is None or attribute is None:
                message = "Index hash key must be the table's, and both must have a range key"
                raise invalid(f"One or more parameter values were invalid: {message}")
            if index["Projection"].get("ProjectionType") != "ALL":
                raise invalid("This fake has only indexes that project all attributes.")
            self.orders[index["IndexName"]] = self._order(attribute)
        used = {self.hash, self.range, *(order.attribute for order in self.orders.values())} - {None}
        if used != self._kinds.keys():
            message = "Number of attributes in KeySchema does not exactly match number of attributes defined in"
            raise invalid(f"One or more parameter values were invalid: {message} AttributeDefinitions")
        self._items: dict[tuple[Any, ...], Item] = {}

    def items(self) -> list[Item]:
        return list(self._items.values())

    # -- items -----------------------------------------------------------------------------------------

    def get(self, key: Item) -> Item | None:
        return self._items.get(self._place(key))

    def put(self, item: Item) -> None:
        place = self._place(item)
        if (old := self._items.get(place)) is not None:
            self.remove(old)
        hash_value = sortable(item[self.hash])
        self._items[place] = item
        for order in self.orders.values():
            order.add(hash_value, item)

    def remove(self, item: Item) -> None:
        del self._items[self._place(item)]
        hash_value = sortable(item[self.hash])
        for order in self.orders.values():
            order.remove(hash_value, item)

    def check_item(self, item: Item) -> Item:
        """The item as it is stored, if DynamoDB would store it."""
        item = {name: normal(value) for name, value in item.items()}
        for name in sorted(self.keys):
            if name not in item:
                raise invalid(f"One or more parameter values were invalid: Missing the key {name} in the item")
        for index, order in self.orders.items():
            name = order.attribute
            if name is not None and name in item and name not in self.keys and order.kind not in item[name]:
                kinds = f"Expected: {order.kind} Actual: {next(iter(item[name]))} IndexName: {index}"
                raise invalid(f"One or more parameter values were invalid: Type mismatch for Index Key {name} {kinds}")
        self._check_keys({name: item[name] for name in self.keys})
        if size(item) > MAX_ITEM:
            raise invalid("Item size has exceeded the maximum allowed size")
        return item

    def check_key(self, key: Item) -> Item:
        if key.keys() != self.keys:
            raise invalid("The provided key element does not match the schema")
        key = {name: normal(value) for name, value in key.items()}
        self._check_keys(key)
        return key

    def key_of(self, item: Item, index: str | None = None) -> Item:
        """What LastEvaluatedKey says of an item: the keys of the table, and of the index."""
        names = self.keys | ({attribute} if (attribute := self.orders[index].attribute) else set())
        return {name: item[name] for name in sorted(names)}

    def _check_keys(self, key: Item) -> None:
        for name, value in key.items():
            kind, content = next(iter(value.items()))
            if kind != self._kinds[name]:
                kinds = f"expected: {self._kinds[name]} actual: {kind}"
                raise invalid(f"One or more parameter values were invalid: Type mismatch for key {name} {kinds}")
            if content == "":
                message = "The AttributeValue for a key attribute cannot contain an empty string value. Key"
                raise invalid(f"One or more parameter values are not valid. {message}: {name}")

    def _place(self, item: Item) -> tuple[Any, ...]:
        return (sortable(item[self.hash]), sortable(item[self.range]) if self.range else None)

    def _order(self, attribute: str | None) -> Order:
        kind = self._kinds.get(attribute) if attribute else None
        return Order(attribute, self.range, kind)

    def _schema(self, schema: list[dict[str, str]]) -> tuple[str, str | None]:
        kinds: dict[str, str] = {each["KeyType"]: each["AttributeName"] for each in schema}
        if "HASH" not in kinds:
            raise invalid("No Hash Key specified in schema.")
        return kinds["HASH"], kinds.get("RANGE")


def bounds(operator: str, operands: list[Value]) -> tuple[Any, Any]:
    """From where to where (both included) a range key may be; `<` and `>` are narrowed by whoever walks."""
    value = sortable(operands[0])
    match operator:
        case "=":
            return value, value
        case "<" | "<=":
            return None, value
        case ">" | ">=":
            return value, None
        case "between":
            return value, sortable(operands[1])
    return value, None  # begins_with: from there on, as long as it does
