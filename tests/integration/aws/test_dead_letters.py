"""Tests of dead-letter queues as the morgue: list, revive and delete by key, for messages of any origin."""

from __future__ import annotations

import json

import pytest

from laneway.brokers.aws.sqs import dead_letters as letters_module
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Kind
from laneway.jobs.settlement import buried, done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, attempts, bodies, call, job, keys, numbers, only
from tests.support.aws.brokers import opened, ready
from tests.support.aws.endpoints import Place


def bury(hand: ScriptedWorker, *, error: str = "no") -> None:
    """Run all that is due, and bury it."""
    while claims := hand.claim(limit=10):
        hand.settle(*(buried(claim, error) for claim in claims))


def test_dead_jobs_are_listed_and_stay(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job(f"j{number:02}", body=f'"{number}"') for number in range(15)])
        bury(ScriptedWorker(broker))
        for _ in range(2):  # looking hides nothing
            page = broker.inspect.listing("q", "dead", order="key")
            assert keys(page.jobs) == [f"j{number:02}" for number in range(15)]
        view = page.jobs[7]
        assert (view.status, view.error, view.attempt, bodies(view)) == ("dead", "no", 1, ['"7"'])
        assert view.updated_at is not None
        assert numbers(broker).dead == 15
        assert keys(broker.inspect.listing("q", "dead", order="key", start="j10", limit=2).jobs) == ["j10", "j11"]
        found, after = [], None
        while True:
            page = broker.inspect.listing("q", "dead", after=after, limit=10)
            found += keys(page.jobs)
            if (after := page.after) is None:
                break
        assert sorted(found) == [f"j{number:02}" for number in range(15)]


def test_revived_jobs_run_again_with_all_their_retries(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job("a"), job("b"), job("c")])
        hand = ScriptedWorker(broker)
        bury(hand)
        assert broker.operate.revive("q", ["a", "c", "a", "never"]) == 2
        assert keys(broker.inspect.listing("q", "dead").jobs) == ["b"]
        claims = hand.claim(limit=10)
        assert sorted(keys(claims)) == ["a", "c"]
        assert {(claim.retry_count, claim.attempt, claim.deaths, claim.error) for claim in claims} == {(-1, 2, 0, "no")}
        hand.settle(*map(done, claims))
        # By the process that buried them, and the same again: each is a version of its own.
        assert broker.operate.revive("q", ["b"]) == 1
        bury(hand)
        assert broker.operate.revive("q", ["b"]) == 1
        hand.settle(done(hand.one()))
        assert numbers(broker).dead == numbers(broker).length == 0


def test_revived_calls_go_back_to_their_key_in_order(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([call("k", f"c{number:02}") for number in range(12)])
        hand = ScriptedWorker(broker)
        bury(hand)
        view = only(broker, "k")
        # More than SQS hands out of one group.
        assert (view.size, bodies(view)) == (12, [f"c{number:02}" for number in range(12)])
        assert (view.kind, view.error) == (Kind.KEYED, "no")
        assert broker.operate.revive("q", ["k"]) == 1
        assert broker.inspect.listing("q", "dead").jobs == []
        ran = []
        while claims := hand.claim(limit=10):
            ran += [body for claim in claims for body in bodies(claim)]
            hand.settle(*map(done, claims))
        assert ran == [f"c{number:02}" for number in range(12)]


def test_a_dead_key_counts_the_attempts_of_what_was_buried_last(aws: Place) -> None:
    """As the call itself, its context and the log do."""
    with ready(aws) as broker:
        broker.enqueue([call("k", "a"), call("k", "b")])
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "of a", 5, 0.0))
        hand.settle(failed(hand.one(), "of b", 5, 0.0, done=1))
        claim = hand.one()
        assert attempts(claim) == {"b": 2}
        hand.settle(buried(claim, "of b"))
        view = only(broker, "k")
        assert (view.error, view.attempt, attempts(view)) == ("of b", 2, {"b": 2})


def test_dead_jobs_are_deleted_for_good(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job("a"), job("b"), call("k", "x")])
        bury(ScriptedWorker(broker))
        assert broker.operate.delete_dead("q", ["a", "k", "never"]) == 2
        assert keys(broker.inspect.listing("q", "dead").jobs) == ["b"]
        assert broker.operate.revive("q", ["a"]) == 0


def test_what_sqs_itself_has_moved_there_says_so(fake: Place) -> None:
    """moto does not tell from where it was moved."""
    fake.create_with_dead_letters("q", max_receives=1)
    url = fake.queue_url("q")
    fake.sqs_client.send_message(QueueUrl=url, MessageBody='{"_job_class":"Ruby","_job_params":null}')
    for _ in range(2):
        answer = fake.sqs_client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    assert "Messages" not in answer
    with opened(fake, table=None) as broker:
        broker.declare("q", 1)
        [view] = broker.inspect.listing("q", "dead").jobs
        assert "SQS itself moved it here" in (view.error or "")
        assert broker.operate.revive("q", [view.key]) == 1
        claim = ScriptedWorker(broker).one()
        assert (claim.key, bodies(claim), claim.error) == (view.key, bodies(view), None)


def test_what_others_have_put_there_is_kept_whole(aws: Place) -> None:
    aws.create_queues("q")
    attribute = {"DataType": "String", "StringValue": "abc"}
    aws.sqs_client.send_message(
        QueueUrl=aws.queue_url("q-deadletter"), MessageBody="anything", MessageAttributes={"trace": attribute}
    )
    with opened(aws, table=None) as broker:
        broker.declare("q", 1)
        [view] = broker.inspect.listing("q", "dead").jobs
        assert (view.error, bodies(view)) == (None, ["anything"])
        assert broker.operate.revive("q", [view.key]) == 1
        [message] = aws.receive_all("q")
        assert message["MessageAttributes"]["trace"] == attribute
        assert json.loads(message["MessageAttributes"]["laneway"]["StringValue"])["id"] == view.key


def test_a_shared_dead_letter_queue_is_told_apart(aws: Place) -> None:
    dead = aws.arn(aws.create_queue("graves"))
    for name in ("q", "other"):
        policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 100})
        aws.create_queue(name, RedrivePolicy=policy)
    with opened(aws, table=None) as broker:
        for name in ("q", "other"):
            broker.declare(name, 1)
            broker.enqueue([job(f"of-{name}", queue=name)])
            hand = ScriptedWorker(broker, f"w-{name}")
            hand.settle(buried(hand.one(queue=name), "no"), queue=name)
        assert keys(broker.inspect.listing("q", "dead").jobs) == ["of-q"]
        assert keys(broker.inspect.listing("other", "dead").jobs) == ["of-other"]
        assert broker.operate.revive("other", ["of-q"]) == 0
        assert broker.operate.revive("q", ["of-q"]) == 1
        assert hand.claim(queue="other") == []


def test_a_job_that_was_buried_twice_is_revived_once(aws: Place) -> None:
    with ready(aws) as broker:
        broker.enqueue([job("a")])
        bury(ScriptedWorker(broker))
        url = aws.queue_url("q-deadletter")
        [letter] = aws.sqs_client.receive_message(QueueUrl=url, MessageAttributeNames=["All"], VisibilityTimeout=0)[
            "Messages"
        ]
        note = {"DataType": "String", "StringValue": letter["MessageAttributes"]["laneway"]["StringValue"]}
        aws.sqs_client.send_message(QueueUrl=url, MessageBody=letter["Body"], MessageAttributes={"laneway": note})
        [view] = broker.inspect.listing("q", "dead").jobs
        assert view.size == 1
        assert broker.operate.delete_dead("q", ["a"]) == 1
        assert numbers(broker).dead <= 1  # the search ended with the first
        broker.operate.delete_dead("q", ["a"])
        assert broker.inspect.listing("q", "dead").jobs == []


def test_more_than_one_look_can_hold_is_left(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters_module, "MOST", 20)
    with ready(fake) as broker:
        broker.enqueue([job(f"j{number}") for number in range(35)])
        bury(ScriptedWorker(broker))
        assert len(broker.inspect.listing("q", "dead", limit=100).jobs) == 20
        assert numbers(broker).dead == 35


def test_a_revival_whose_answers_are_lost_loses_nothing(fake: Place) -> None:
    """Sent first, deleted then: what fails between leaves the job in both places, and nowhere less."""
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
            broker.operate.revive("q", ["a"])
        broker.account.clients.sqs = ask  # type: ignore[method-assign]
        assert keys(broker.inspect.listing("q", "dead").jobs) == ["a"]
        assert keys(ScriptedWorker(broker, "w-2").claim()) == ["a"]
