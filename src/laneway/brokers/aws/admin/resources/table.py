"""TableResource: the DynamoDB table in which delayed jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .....errors import BrokerAwayError
from ...dynamodb.items import INDEX
from ...dynamodb.tables import problem_of
from ...errors import AWSError, DeniedError, MissingError
from .resource import CREATE_IT, NOBODY, Actions, Creation, Findings, Grant, Probes, Resource

if TYPE_CHECKING:
    from ...account import Account
    from ..iam import AccountLocation

HASH, RANGE, TIME = "scheduler", "job_id", "perform_at"
#: The attribute with the time, in unix seconds, after which DynamoDB may delete an item.
EXPIRES = "expires_at"

#: Seconds to wait for a new table to become active, and between two looks.
PATIENCE_S = 120.0
PAUSE_S = 0.5

_READ = ("dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query")
_WRITE = ("dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:UpdateItem")


class TableResource(Resource):
    """A waiter table."""

    actions = Actions(
        producer=(*_READ, *_WRITE),
        worker=(*_READ, *_WRITE, "dynamodb:PutItem"),
        operator=(*_READ, "dynamodb:DeleteItem", "dynamodb:UpdateItem"),
    )
    service, look_action = "dynamodb", "dynamodb:DescribeTable"
    note = "; it is paid by request"

    def __init__(self, account: Account, name: str) -> None:
        super().__init__(account, name, f"the table {name}")
        self._dynamodb = account.clients.dynamodb
        self._named = account.settings.table is not None
        self.subject, self.existing = f"The table {name}, for delayed jobs,", f"The table {name} exists."

    def look(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._dynamodb("describe_table", TableName=self.name)["Table"]
        except MissingError:
            return None
        return found

    def make(self, creation: Creation) -> None:
        def keys(hash_key: str, range_key: str) -> list[dict[str, str]]:
            kinds = {hash_key: "HASH", range_key: "RANGE"}
            return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds.items()]

        types = {HASH: "S", RANGE: "S", TIME: "N"}
        index = {"IndexName": INDEX, "KeySchema": keys(HASH, TIME), "Projection": {"ProjectionType": "ALL"}}
        self._dynamodb(
            "create_table",
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()],
            KeySchema=keys(HASH, RANGE),
            LocalSecondaryIndexes=[index],
        )
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            if (self.look() or {}).get("TableStatus") == "ACTIVE":
                break
            creation.pause(PAUSE_S)
        else:
            raise BrokerAwayError(
                f"The table {self.name} is not ready after {PATIENCE_S:.0f} seconds; do it again in a while."
            )
        # If we die before this, the table works without expiry, and the next run reports that.
        expiry = {"Enabled": True, "AttributeName": EXPIRES}
        self._dynamodb("update_time_to_live", TableName=self.name, TimeToLiveSpecification=expiry)

    def missing(self) -> Findings:
        why = "which the URL names" if self._named else "in which records=on of the URL keeps how jobs end"
        if self._named or self.account.settings.records:
            yield self.problem("no-table", f"There is no table {self.name}, {why}; {CREATE_IT}.")

    def wrong(self, found: dict[str, Any]) -> Findings:
        if (problem := problem_of(found)) is not None:
            yield self.problem("wrong-table", problem)
            return
        try:
            expiry = self._dynamodb("describe_time_to_live", TableName=self.name).get("TimeToLiveDescription", {})
        except AWSError:
            return  # a worker does not need this permission
        on = expiry.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        if not on or expiry.get("AttributeName", EXPIRES) != EXPIRES:
            yield self.problem(
                "no-expiry",
                f"The table {self.name} keeps for ever what may be forgotten (workers that have gone, failed calls, "
                f"how jobs ended); turn on its time to live for the attribute {EXPIRES}.",
            )

    def unreadable(self, error: AWSError) -> Findings:
        if self._named or not isinstance(error, DeniedError):  # SQS alone needs no access to DynamoDB
            yield from super().unreadable(error)

    def probes(self, found: dict[str, Any]) -> Probes:
        if problem_of(found) is not None:
            return {}  # it may be used for something else
        table, key = {"TableName": self.name}, {HASH: {"S": NOBODY}, RANGE: {"S": NOBODY}}
        values = {"ExpressionAttributeValues": {":s": {"S": NOBODY}}}
        unless = {"ConditionExpression": f"attribute_exists({RANGE})"}
        update = {"UpdateExpression": "SET #v = :s", "ExpressionAttributeNames": {"#v": NOBODY}, **values, **unless}
        query = {"KeyConditionExpression": "#s = :s", "ExpressionAttributeNames": {"#s": HASH}, **values, "Limit": 1}
        delete = [{"DeleteRequest": {"Key": key}}]
        return {
            "dynamodb:GetItem": ("get_item", {**table, "Key": key}),
            "dynamodb:BatchGetItem": ("batch_get_item", {"RequestItems": {self.name: {"Keys": [key]}}}),
            "dynamodb:BatchWriteItem": ("batch_write_item", {"RequestItems": {self.name: delete}}),
            "dynamodb:PutItem": ("put_item", {**table, "Item": key, **unless}),
            "dynamodb:DeleteItem": ("delete_item", {**table, "Key": key, **unless}),
            "dynamodb:UpdateItem": ("update_item", {**table, "Key": key, **update}),
            "dynamodb:Query": ("query", {**table, **query}),
            # The index is a resource of its own. A policy has to name it.
            f"dynamodb:Query (of its index {INDEX})": ("query", {**table, **query, "IndexName": INDEX}),
        }

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        arn = location.arn("dynamodb", f"table/{self.name}")
        yield "LanewayTables", self.actions, arn
        yield "LanewayTables", self.actions, f"{arn}/index/{INDEX}"
