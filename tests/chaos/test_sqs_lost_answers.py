"""Replies of SQS and DynamoDB are lost after the call was executed: no job is lost, and repeats are the same job.

The scenario (`tests/chaos/sqs_scenario.py`) makes every call that there is. First boto3 itself repeats the call;
then the replies to all of its attempts are lost, and the caller repeats it. `make test` loses the nth reply to all
operations in one pass, `make chaos` also that to each operation by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from botocore.retries.standard import ExponentialBackoff

from laneway.brokers.aws.clients import ATTEMPTS, Clients
from tests.chaos.sqs_scenario import Story
from tests.support.aws.fault_proxy import LOST, FaultProxy
from tests.support.aws.servers import FakeServer, MotoServer
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

#: Who makes the call again: for the caller to have to, the answers to all attempts of the client are lost.
LOSSES = {"client": 1, "caller": ATTEMPTS}
OPERATIONS = [
    *("sqs.GetQueueUrl", "sqs.GetQueueAttributes", "sqs.SendMessageBatch", "sqs.ReceiveMessage"),
    *("sqs.DeleteMessageBatch", "sqs.ChangeMessageVisibilityBatch"),
    *("dynamodb.DescribeTable", "dynamodb.BatchWriteItem", "dynamodb.Query", "dynamodb.UpdateItem", "dynamodb.GetItem"),
    *("dynamodb.DeleteItem", "dynamodb.BatchGetItem", "dynamodb.PutItem"),
]
Ways = list[tuple[str, str, int]]
SMALL: Ways = [("fake", "client", 1), ("fake", "caller", 1), ("fake", "caller", 3), ("moto", "client", 2)]
ALL: Ways = [(server, by, nth) for server in ("fake", "moto") for by in LOSSES for nth in (1, 2, 3)]

_tellings = count()


class Teller:
    """Tells the story on one server, through a network that loses answers."""

    def __init__(self, server: FakeServer | MotoServer, proxy: FaultProxy) -> None:
        self.server, self.proxy = server, proxy
        self.clients = Clients(proxy.settings(wait_s=0))

    def tell(self, operations: list[str], by: str, nth: int) -> None:
        """The nth answer to each of the operations is lost; findings are named."""
        where = f"the {by} repeats call {nth} of {', '.join(operations)}"
        self.proxy.clear()
        first = (nth - 1) * LOSSES[by] + 1
        lost = [self.proxy.rule(LOST, each, nth=range(first, first + LOSSES[by])) for each in operations]
        story = Story(self.server, self.clients, f"story-{next(_tellings)}")
        story.tell()
        # A receive of a standard queue whose answer is lost shows nothing of its messages until they are visible again.
        assert story.findings() == [], where
        assert set(self.proxy.requests) <= set(OPERATIONS), "there is a call that the tests do not know"
        missed = [rule.operation for rule in lost if not rule.happened and rule.seen >= first]
        assert missed == [], where


@pytest.fixture
def teller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Teller]:
    # boto3 waits half a second on average before it tries again.
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.0)
    server = request.getfixturevalue(request.param)
    with FaultProxy(server.endpoint) as proxy:
        teller = Teller(server, proxy)
        yield teller
        teller.clients.close()


@pytest.mark.parametrize(("teller", "by", "nth"), ALL if LARGE else SMALL, indirect=["teller"])
def test_an_answer_of_every_call_is_lost(teller: Teller, by: str, nth: int) -> None:
    teller.tell(OPERATIONS, by, nth)


@pytest.mark.parametrize(
    ("teller", "by", "nth", "operation"),
    [(*way, operation) for operation in OPERATIONS for way in ALL] if LARGE else [(*SMALL[0], OPERATIONS[0])],
    indirect=["teller"],
)
def test_an_answer_is_lost(teller: Teller, by: str, nth: int, operation: str) -> None:
    teller.tell([operation], by, nth)


@pytest.mark.parametrize("teller", ["fake"], indirect=True)
def test_the_story_makes_every_call_and_all_is_well(teller: Teller) -> None:
    teller.tell([], "client", 1)
    assert set(teller.proxy.requests) == set(OPERATIONS)
