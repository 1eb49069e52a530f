"""Tests of reloading or purging a whole dead-letter queue: kept attributes, remaining messages, and that it ends."""

from __future__ import annotations

import json

import pytest

from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.sqs import dead_letters as letters_module
from laneway.cli.act import MorgueBulkAction
from laneway.errors import BrokerAwayError
from laneway.jobs.settlement import buried, done
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, job, keys, numbers
from tests.integration.aws.test_dead_letters import bury
from tests.support.aws.brokers import opened, ready
from tests.support.aws.endpoints import Place
from tests.support.aws.fault_proxy import LOST, FaultProxy


def emptied(broker: AWSBroker, *, revive: bool = True, most: int = 1_000, queue: str = "q") -> list[int]:
    return list(broker.operate.empty_morgue(queue, revive=revive, most=most))


def test_all_are_put_back_with_all_their_retries(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number:02}", body=f'"{number}"') for number in range(25)])
        hand = ScriptedWorker(broker)
        bury(hand)
        steps = emptied(broker)
        assert sum(steps) == 25
        assert max(steps) == 10
        assert numbers(broker).dead == 0
        ran = []
        while claims := hand.claim(limit=10):
            assert {(claim.retry_count, claim.attempt, claim.deaths, claim.error) for claim in claims} == {
                (-1, 2, 0, "no")
            }
            ran += keys(claims)
            hand.settle(*map(done, claims))
        assert sorted(ran) == [f"j{number:02}" for number in range(25)]


def test_all_are_deleted(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number}") for number in range(12)])
        hand = ScriptedWorker(broker)
        bury(hand)
        assert sum(emptied(broker, revive=False)) == 12
        assert (numbers(broker).dead, hand.claim()) == (0, [])


@pytest.mark.parametrize("revive", [True, False])
def test_no_more_than_so_many(aws: Place, revive: bool) -> None:
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number}") for number in range(15)])
        bury(ScriptedWorker(broker))
        assert sum(emptied(broker, revive=revive, most=12)) == 12
        assert len(broker.inspect.listing("q", "dead").jobs) == 3, "and they can be seen at once"


def test_what_dies_again_meanwhile_is_left(aws: Place) -> None:
    """A worker buries whatever comes back, as fast as it comes."""
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number}") for number in range(25)])
        hand = ScriptedWorker(broker)
        bury(hand)
        count = 0
        for step in broker.operate.empty_morgue("q", revive=True, most=1_000):
            count += step
            bury(hand, error="again")
        assert count == 25
        views = broker.inspect.listing("q", "dead").jobs
        assert (len(views), {view.error for view in views}) == (25, {"again"})


def test_what_dies_again_is_known_though_clocks_differ(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's clock is an hour ahead of SQS's: nothing seems to be younger."""
    with ready(fake) as broker:
        broker.enqueue([job(f"j{number}") for number in range(12)])
        hand = ScriptedWorker(broker)
        bury(hand)
        now = broker.account.clock.now
        monkeypatch.setattr(broker.account.clock, "now", lambda: now() + 3_600)
        steps = broker.operate.empty_morgue("q", revive=True, most=1_000)
        monkeypatch.undo()
        count = 0
        for step in steps:
            count += step
            bury(hand, error="again")
        assert count == 12
        assert numbers(broker).dead == 12


def test_what_others_put_there_keeps_all_its_attributes(aws: Place) -> None:
    """Also more than go along beside ours: SQS takes ten."""
    aws.create_queues("q")
    attributes = {f"a{number}": {"DataType": "String", "StringValue": f"{number}"} for number in range(8)}
    attributes |= {
        "n": {"DataType": "Number", "StringValue": "7"},
        "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    aws.sqs_client.send_message(
        QueueUrl=aws.queue_url("q-deadletter"), MessageBody="anything", MessageAttributes=attributes
    )
    with opened(aws, table=None) as broker:
        broker.declare("q", 1)
        assert emptied(broker) == [1]
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert bodies(claim) == ["anything"]
        hand.settle(buried(claim, "no"))
        with broker.morgue.receiver(next(broker.morgue.places("q"))[1]) as held:
            [letter] = held.take()
        assert letter.message.attributes == attributes


def test_what_sqs_itself_has_moved_there_goes_back(aws: Place) -> None:
    aws.create_with_dead_letters("q", max_receives=1)
    url = aws.queue_url("q")
    attribute = {"trace": {"DataType": "String", "StringValue": "abc"}}
    aws.sqs_client.send_message(QueueUrl=url, MessageBody='{"a":1}', MessageAttributes=attribute)
    for _ in range(2):
        answer = aws.sqs_client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    assert "Messages" not in answer
    with opened(aws, table=None) as broker:
        broker.declare("q", 1)
        assert emptied(broker) == [1]
        [message] = aws.receive_all("q")
        assert (message["Body"], message["MessageAttributes"]["trace"]) == ('{"a":1}', attribute["trace"])
        assert numbers(broker).dead == 0


def test_letters_of_others_are_given_back(aws: Place) -> None:
    dead = aws.arn(aws.create_queue("graves"))
    for name in ("q", "other"):
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 100})
        aws.create_queue(name, RedrivePolicy=policy)
    with opened(aws, table=None) as broker:
        for name in ("q", "other"):
            broker.declare(name, 1)
            broker.enqueue([job(f"of-{name}-{number}", queue=name) for number in range(12)])
            hand = ScriptedWorker(broker, f"w-{name}")
            while claims := hand.claim(queue=name, limit=10):
                hand.settle(*(buried(claim, "no") for claim in claims), queue=name)
        assert sum(emptied(broker, revive=False)) == 12
        assert len(broker.inspect.listing("other", "dead").jobs) == 12
        assert sum(emptied(broker, queue="other")) == 12


@pytest.mark.parametrize("revive", [True, False])
def test_letters_of_nobody_are_left_where_several_share_a_queue(aws: Place, revive: bool) -> None:
    dead = aws.create_queue("graves")
    aws.create_queue("q", RedrivePolicy=json.dumps({"deadLetterTargetArn": aws.arn(dead), "maxReceiveCount": 100}))
    for number in range(3):
        aws.sqs_client.send_message(QueueUrl=dead, MessageBody=f"a stranger's {number}")
    with opened(aws, table=None) as broker:
        broker.enqueue([job("a"), job("b")])
        bury(ScriptedWorker(broker))
        run = MorgueBulkAction(broker, "q", revive=revive, total=5, most=None)
        run.carry_out("Emptied")
        assert (run.done, run.ownerless, run.unseen) == (2, 3, 0)
    assert len(aws.receive_all("graves")) == 3, "given back at once"


def test_what_was_not_seen_is_told(fake: Place) -> None:
    """The answer to a receive is lost, and what was in it is hidden for a while."""
    fake.create_with_dead_letters("q")
    with FaultProxy(fake.endpoint) as proxy:
        broker = AWSBroker(proxy.settings(wait_s=0), inline=True)  # with clients that repeat
        broker.enqueue([job(f"j{number:02}") for number in range(40)])
        bury(ScriptedWorker(broker))
        lost = proxy.rule(LOST, "ReceiveMessage", nth=2)
        run = MorgueBulkAction(broker, "q", revive=True, total=40, most=None)
        run.carry_out("Reloaded")
        assert lost.happened == 1
        assert (run.done, run.unseen, run.hidden_s) == (30, 10, 90)
        proxy.rule(LOST, "ReceiveMessage", nth=1)
        enough = MorgueBulkAction(broker, "q", revive=True, total=10, most=0)
        enough.carry_out("Reloaded")
        assert (enough.done, enough.unseen) == (0, 0)
        broker.close()


def test_a_job_that_was_buried_twice_is_put_back_once(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job("a")])
        hand = ScriptedWorker(broker)
        bury(hand)
        url = aws.queue_url("q-deadletter")
        [letter] = aws.sqs_client.receive_message(QueueUrl=url, MessageAttributeNames=["All"], VisibilityTimeout=0)[
            "Messages"
        ]
        note = {"DataType": "String", "StringValue": letter["MessageAttributes"]["laneway"]["StringValue"]}
        aws.sqs_client.send_message(QueueUrl=url, MessageBody=letter["Body"], MessageAttributes={"laneway": note})
        assert emptied(broker) == [1]
        assert keys(hand.claim(limit=10)) == ["a"]
        assert numbers(broker).dead == 0


def test_more_than_one_hand_can_hold_is_done_all_the_same(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_module, "MOST", 20)
    with ready(fake) as broker:
        broker.enqueue([job(f"j{number}") for number in range(65)])
        bury(ScriptedWorker(broker))
        assert sum(emptied(broker)) == 65
        assert numbers(broker).length == 65


def test_an_end_between_two_steps_leaves_nothing_half_done(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number}") for number in range(25)])
        hand = ScriptedWorker(broker)
        bury(hand)
        steps = broker.operate.empty_morgue("q", revive=True, most=1_000)
        assert next(steps) == 10
        steps.close()
        assert len(broker.inspect.listing("q", "dead").jobs) == 15, "and none is hidden"
        assert numbers(broker).length == 10


def test_what_was_sent_and_not_deleted_is_in_both_places(fake: Place) -> None:
    with ready(fake) as broker:
        broker.enqueue([job("a")])
        bury(ScriptedWorker(broker))
        ask = broker.account.clients.sqs

        def lose(operation: str, **params: object) -> dict[str, object]:
            if operation == "delete_message_batch":
                raise BrokerAwayError("SQS is away.")
            return ask(operation, **params)

        broker.account.clients.sqs = lose  # type: ignore[method-assign]  # the network
        with pytest.raises(BrokerAwayError):
            emptied(broker)
        broker.account.clients.sqs = ask  # type: ignore[method-assign]
        assert keys(broker.inspect.listing("q", "dead").jobs) == ["a"]
        assert keys(ScriptedWorker(broker, "w-2").claim()) == ["a"]
