"""Listings of a waiter table: pages by due time, and counts, over all its partitions."""

from __future__ import annotations

import binascii
import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ....errors import BrokerError
from .client import key
from .items import INDEX, RUBY, Waiting, sqs_name
from .values import number

if TYPE_CHECKING:
    from .delayed_jobs import Table

#: Where a listing goes on: of each partition, the due time and the id of its last item that was listed.
_Places = dict[str, tuple[str, str]]


def page(
    table: Table, queue: str, *, start: float | None, after: str | None, reverse: bool, limit: int
) -> tuple[list[Waiting], str | None]:
    places = _places_of(after)
    streams = [
        _listed(table, queue, partition, start, places.get(partition), reverse, limit)
        for partition in table.partitions()
    ]
    merged = heapq.merge(*streams, key=lambda each: (each.perform_at, each.job_id), reverse=reverse)
    found = list(islice(merged, limit + 1))
    if len(found) <= limit:
        return found, None
    found.pop()
    for each in found:
        places[each.partition] = each.seen, each.job_id
    return found, urlsafe_b64encode(msgspec.json.encode(places)).decode()


def count(table: Table, queue: str, *, until: float | None) -> int:
    return sum(
        answer["Count"]
        for partition in table.partitions()
        for answer in table.query(Select="COUNT", **_question(table, queue, partition, until, "<="))
    )


def _listed(
    table: Table,
    queue: str,
    partition: str,
    start: float | None,
    place: tuple[str, str] | None,
    reverse: bool,
    limit: int,
) -> Iterator[Waiting]:
    """The items of one partition, in order of their due times."""
    question = _question(table, queue, partition, start, "<=" if reverse else ">=")
    if place is not None:
        question["ExclusiveStartKey"] = key(partition, place[1]) | {"perform_at": {"N": place[0]}}
    for answer in table.query(ScanIndexForward=not reverse, Limit=limit + 1, **question):
        yield from table.read(answer["Items"])


def _question(table: Table, queue: str, partition: str, bound: float | None, compare: str) -> dict[str, Any]:
    """A query for the items of a queue in one partition, due at, before or after `bound`."""
    names = {"#scheduler": "scheduler"}
    values: dict[str, Any] = {":scheduler": {"S": partition}}
    condition = "#scheduler = :scheduler"
    if bound is not None:
        names["#at"], values[":bound"] = "perform_at", number(bound)
        condition += f" AND #at {compare} :bound"
    if partition == RUBY:
        names |= {"#body": "sqs_message_body", "#name": "queue_name"}
        name = sqs_name(table.settings, queue)
        values |= {":name": {"S": name}, ":fifo": {"S": f"{name}.fifo"}}
        only = "#body.#name IN (:name, :fifo)"
    else:
        names["#queue"], values[":queue"] = "queue", {"S": queue}
        only = "#queue = :queue"
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": condition,
        "FilterExpression": only,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ConsistentRead": table.consistent,
    }


def _places_of(after: str | None) -> _Places:
    if after is None:
        return {}
    try:
        return msgspec.json.decode(urlsafe_b64decode(after), type=_Places)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise BrokerError(f"The listing cannot go on after {after!r}; give what the page before it said.") from None
