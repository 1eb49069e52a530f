"""Tests of publishing to SNS: the bytes of the Ruby and JavaScript originals, batches by count and size, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laneway import Laneway
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.errors import MissingError
from laneway.brokers.aws.settings import MAX_NAME
from laneway.brokers.aws.sqs import send_batch
from laneway.brokers.aws.sqs.message import ROOM, outgoing_of, size_of
from laneway.errors import BrokerAwayError, EnqueueError
from laneway.jobs.data import EventCopy, NewJob
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, job, keys
from tests.integration.aws.event_topic import MAILER, STOCK, TOPIC, TRACE, event, hear, listening, note_in, theirs
from tests.support.aws.brokers import opened, said
from tests.support.aws.endpoints import Place
from tests.support.aws.fake.server import FakeServer
from tests.support.aws.fault_proxy import ERROR_500, LOST, RESET, THROTTLED, FaultProxy, Partly


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_batch, "PAUSES_S", (0.0,) * 5)


class Noting(Clients):
    """Notes which events stand in which request."""

    def sns(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation in ("publish", "publish_batch"):
            entries = params.get("PublishBatchRequestEntries", [params])
            self.published.append((operation, [note_in(entry)["id"] for entry in entries]))
        return super().sns(operation, **params)

    @property
    def published(self) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = self.__dict__.setdefault("_published", [])
        return found


@pytest.fixture
def noting(fake: FakeServer) -> Iterator[AWSBroker]:
    """A broker that notes what it publishes."""
    hear(fake, MAILER)
    settings = fake.settings(wait_s=0)
    broker = AWSBroker(settings, clients=Noting.of(settings, **fake.clients), inline=True)
    yield broker
    broker.close()


def requests(broker: AWSBroker) -> list[tuple[str, list[str]]]:
    assert isinstance(broker.account.clients, Noting)
    return broker.account.clients.published


# -- what is written -----------------------------------------------------------------------------------


def test_the_body_is_the_value_and_nothing_else(aws: Place) -> None:
    """As the Ruby and JavaScript originals publish it, and read it: JSON, no envelope of ours."""
    values = ['{"id":7,"lines":[{"sku":"é-1"}]}', '"a string"', "null", "[1,2.5]", "7"]
    with listening(aws, MAILER, STOCK) as broker:
        broker.enqueue([event("e0", values[0])])
        broker.enqueue([event(f"e{n}", body) for n, body in enumerate(values[1:], 1)])
    for queue in (MAILER, STOCK):
        messages = aws.receive_all(queue)
        assert {note_in(message)["id"]: message["Body"] for message in messages} == {
            f"e{n}": body for n, body in enumerate(values)
        }
        assert all(note_in(message).keys() == {"id", "event"} for message in messages)
        assert all(theirs(message) == {} for message in messages)


def test_what_is_published_beside_it_are_message_attributes(aws: Place) -> None:
    beside = {"country": "DE", "cents": 5, "rate": -0.25, "tags": ["a", "ü"]}
    with listening(aws) as broker:
        broker.enqueue([event("e1", beside=beside, headers={**TRACE, "tenant": "7", "tracestate": ""})])
    (message,) = aws.receive_all(MAILER)
    assert theirs(message) == {
        "country": ("String", "DE"),
        "cents": ("Number", "5"),
        "rate": ("Number", "-0.25"),
        "tags": ("String.Array", '["a","ü"]'),
        **{name: ("String", text) for name, text in TRACE.items()},
    }
    assert note_in(message) == {"id": "e1", "event": True, "headers": {"tenant": "7", "tracestate": ""}}


def test_what_goes_straight_into_one_queue_is_written_alike(aws: Place) -> None:
    """As the original's sender does: the same body and attributes, and otherwise a job like any other."""
    sent = job("j1", '{"id":7}', queue=MAILER, event=EventCopy(attributes={"n": 1}), headers={"n": "1", **TRACE})
    with listening(aws) as broker:
        broker.enqueue([sent, job("j2", "7", queue=MAILER, event=EventCopy(attributes={}), delay_s=60)])
    (message,) = aws.receive_all(MAILER)
    assert message["Body"] == '{"id":7}'
    assert theirs(message) == {"n": ("Number", "1"), **{name: ("String", text) for name, text in TRACE.items()}}
    assert note_in(message) == {"id": "j1", "value": True}
    assert aws.counts(MAILER) == (0, 1, 1)


def test_ten_attributes_are_delivered_and_filters_see_those_of_the_event(aws: Place) -> None:
    """SQS takes ten with a message, and SNS drops what has more."""
    trace = dict.fromkeys(("traceparent", "tracestate", "baggage", "sentry-trace"), "x")
    aws.create_with_dead_letters(MAILER)
    arn = aws.create_topic(TOPIC)
    aws.let_in(MAILER, arn)
    aws.subscribe(arn, MAILER, RawMessageDelivery="true", FilterPolicy={"a4": ["yes"]})
    with opened(aws, table=None) as broker:
        for id, answer in (("e1", "yes"), ("e2", "no")):
            beside = {**{f"a{n}": "x" for n in range(4)}, "a4": answer}
            broker.enqueue([event(id, beside=beside, headers={**trace, "more": "h"})])
        claim = ScriptedWorker(broker).one(queue=MAILER)
    assert claim.key == f"e1@{MAILER}"
    assert claim.headers == {**{f"a{n}": "x" for n in range(4)}, "a4": "yes", **trace, "more": "h"}


# -- in requests ---------------------------------------------------------------------------------------


def test_one_is_published_and_many_are_in_tens_and_in_order(noting: AWSBroker, fake: FakeServer) -> None:
    noting.enqueue([event("one")])
    noting.enqueue([event(f"e{n}") for n in range(21)])
    ids = [f"e{n}" for n in range(21)]
    assert requests(noting) == [
        ("publish", ["one"]),
        ("publish_batch", ids[:10]),
        ("publish_batch", ids[10:20]),
        ("publish", ids[20:]),
    ]
    assert noting.account.clients.requests["sns.PublishBatch"] == 2
    assert sorted(note_in(raw)["id"] for raw in fake.receive_all(MAILER)) == sorted(["one", *ids])


def test_requests_are_split_by_bytes(noting: AWSBroker, fake: FakeServer) -> None:
    large, small = f'"{"b" * 100_000}"', '"s"'
    noting.enqueue([event(f"e{n}", large if n in (0, 1, 2, 5) else small) for n in range(8)])
    assert [ids for _, ids in requests(noting)] == [["e0", "e1"], ["e2", "e3", "e4", "e5", "e6", "e7"]]
    assert fake.counts(MAILER)[0] == 8


def test_the_largest_that_is_not_refused_arrives_and_can_be_retried(aws: Place) -> None:
    """SNS takes 256 KiB even where queues take more; all are looked at before any is sent."""
    beside = size_of(outgoing_of(event("e1", "")))
    most = 262_144 - beside - ROOM - MAX_NAME - 1
    with listening(aws, max_body=1_048_576) as broker:
        with pytest.raises(EnqueueError) as refused:
            broker.enqueue([event("e0"), event("e1", "1" * (most + 1))])
        assert (
            "The event 'e1' cannot be published to the topic eventboss-shop-order_placed-test: its message is 26"
            in (said(refused))
        )
        assert "and SNS takes 262144 at most; store the data elsewhere and publish where it is." in said(refused)
        assert refused.value.place == (TOPIC, "e1")
        assert (
            broker.account.clients.requests["sns.Publish"] == broker.account.clients.requests["sns.PublishBatch"] == 0
        )
        broker.enqueue([event("e1", "1" * most)])
        assert [len(body) for body in bodies(ScriptedWorker(broker).one(queue=MAILER))] == [most]


def test_a_time_is_refused(fake: FakeServer) -> None:
    with (
        listening(fake) as broker,
        pytest.raises(EnqueueError, match="SNS hands on what is published at once; leave its"),
    ):
        broker.enqueue([event("e1", delay_s=5)])


@pytest.mark.parametrize(
    "sent", [event("e1", '"a\uffff"'), job("j1", '"a\uffff"', queue=MAILER, event=EventCopy(attributes={}))]
)
def test_a_character_that_sqs_does_not_take_is_told_of_the_value(fake: FakeServer, sent: NewJob) -> None:
    with listening(fake) as broker, pytest.raises(EnqueueError) as refused:
        broker.enqueue([sent])
    told = "its value holds the character U+FFFF, which SQS does not take; leave it out of the value."
    assert said(refused).endswith(told)


def test_events_and_jobs_are_sent_together(aws: Place) -> None:
    """Queues that are missing are found before anything is published."""
    with listening(aws) as broker:
        both = [job("j1", queue=MAILER), event("e1"), event("e2")]
        with pytest.raises(MissingError, match="There is no SQS queue gone "):
            broker.enqueue([*both, job("j2", queue="gone")])
        assert aws.counts(MAILER) == (0, 0, 0)
        broker.enqueue(both)
        assert sorted(keys(ScriptedWorker(broker).claim(queue=MAILER))) == [f"e1@{MAILER}", f"e2@{MAILER}", "j1"]


# -- what goes wrong -----------------------------------------------------------------------------------


def test_events_that_sns_did_not_take_are_published_alone(fake: FakeServer) -> None:
    hear(fake, MAILER)
    with FaultProxy(fake.endpoint) as proxy, opened(proxy, table=None) as broker:
        partly = proxy.rule(Partly((1, 3)), "PublishBatch", nth=1)
        broker.enqueue([event(f"e{n}") for n in range(5)])
        assert partly.happened == 1
    assert sorted(note_in(raw)["id"] for raw in fake.receive_all(MAILER)) == [f"e{n}" for n in range(5)]


def test_what_sns_refuses_is_named_and_what_it_does_not_take_is_told(fake: FakeServer) -> None:
    hear(fake, MAILER)
    with FaultProxy(fake.endpoint) as proxy, opened(proxy, table=None) as broker:
        proxy.rule(Partly((1,), sender_fault=True, code="InvalidParameter"), "PublishBatch", nth=1)
        with pytest.raises(EnqueueError) as refused:
            broker.enqueue([event(f"e{n}") for n in range(12)])
        assert refused.value.place == (TOPIC, "e1")
        sentence = "Items 1 and 10 to 11 of 12 were not published: SNS does not take item 1 ("
        assert str(refused.value).startswith(sentence)
        proxy.clear()
        proxy.rule(Partly((0,)), "PublishBatch")
        with pytest.raises(
            BrokerAwayError, match="SNS did not take 1 of 2 messages in 6 tries, and says why: Internal"
        ):
            broker.enqueue([event("a"), event("b")])


def test_what_was_not_published_of_many_can_be_published_again(fake: FakeServer) -> None:
    """The caller knows its values by their places alone: it has been given no ids."""
    hear(fake, MAILER)
    with FaultProxy(fake.endpoint) as proxy, opened(proxy, table=None) as broker:
        app = Laneway(broker=broker, name="shop", env="test")
        proxy.rule(Partly((1,), sender_fault=True, code="InvalidParameter"), "PublishBatch", nth=1)
        with pytest.raises(EnqueueError) as refused:
            app.publish_many("order_placed", range(25))
        assert said(refused).startswith("Items 1 and 10 to 24 of 25 were not published: SNS does not take item 1 (")
        assert refused.value.unstored == [1, *range(10, 25)]
        app.publish_many("order_placed", [1, *range(10, 25)])
        assert sorted(int(raw["Body"]) for raw in fake.receive_all(MAILER)) == list(range(25))


@pytest.mark.parametrize("fault", [LOST, RESET, ERROR_500, THROTTLED])
@pytest.mark.parametrize("count", [1, 3])
def test_a_request_that_failed_is_repeated_and_nothing_runs_twice(fake: FakeServer, fault: str, count: int) -> None:
    """The answer was lost: SNS has published twice, under the same id."""
    hear(fake, MAILER)
    with FaultProxy(fake.endpoint) as proxy:
        broker = AWSBroker(proxy.settings(wait_s=0), inline=True)  # with clients that repeat
        rule = proxy.rule(fault, "Publish" if count == 1 else "PublishBatch", nth=1)
        broker.enqueue([event(f"e{n}") for n in range(count)])
        assert rule.happened == 1
        assert fake.counts(MAILER)[0] == count * (2 if fault == LOST else 1)
        hand = ScriptedWorker(broker)
        claims = hand.claim(queue=MAILER)
        claims += hand.claim(queue=MAILER)
        assert sorted(keys(claims)) == [f"e{n}@{MAILER}" for n in range(count)]
        hand.settle(*map(done, claims), queue=MAILER)
        assert hand.claim(queue=MAILER) == []
        assert fake.counts(MAILER) == (0, 0, 0)
        broker.close()


def test_a_topic_that_is_missing_is_told_and_made_in_development(aws: Place) -> None:
    aws.create_with_dead_letters(MAILER)
    with opened(aws, table=None) as broker:
        for events in ([event("e1")], [event("e1"), event("e2")]):
            with pytest.raises(MissingError) as missing:
                broker.enqueue(events)
            assert f"There is no SNS topic {TOPIC} at {aws.endpoint}, so that nothing can be" in str(missing.value)
            assert "create it with `laneway aws create TARGET --publishes EVENT`." in str(missing.value)
        broker.health.auto_create = True
        broker.enqueue([event("e1")])
        assert broker.account.topics.exists(TOPIC)
        broker.enqueue([event("e2", topic="another"), event("e3", topic="another")])
        assert broker.account.topics.exists("another")


def test_names_have_the_prefix_and_the_account_of_the_url(fake: FakeServer) -> None:
    fake.create_with_dead_letters(f"p-{MAILER}")
    fake.create_topic(f"p-{TOPIC}", f"p-{MAILER}", RawMessageDelivery="true")
    with opened(fake, table=None, prefix="p-") as broker:
        broker.enqueue([event("e1")])
        assert keys(ScriptedWorker(broker).claim(queue=MAILER)) == [f"e1@{MAILER}"]
        assert broker.account.clients.requests["sts.GetCallerIdentity"] == 1
        broker.enqueue([event("e2")])
        assert broker.account.clients.requests["sts.GetCallerIdentity"] == 1


# -- what a run publishes ------------------------------------------------------------------------------


def test_what_a_run_publishes_is_sent_before_its_message_is_deleted_and_once(fake: FakeServer) -> None:
    hear(fake, MAILER)
    fake.create_queues("q")
    with FaultProxy(fake.endpoint) as proxy, opened(proxy, table=None) as broker:
        broker.enqueue([job("a")])
        hand = ScriptedWorker(broker)
        claim = hand.one()
        proxy.clear()
        failing = proxy.rule(ERROR_500, "SendMessageBatch", nth=1)
        outbox = [event("e1"), event("e2"), job("next")]
        with pytest.raises(BrokerAwayError):
            hand.settle(done(claim, outbox))
        assert (failing.happened, fake.counts("q")) == (1, (0, 1, 0))
        assert hand.again().refused == []
        calls = [call.operation for call in proxy.log if call.service != "sts"]
        assert calls == ["PublishBatch", "SendMessageBatch", "SendMessageBatch", "DeleteMessageBatch"]
        assert sorted(keys(ScriptedWorker(broker, "two").claim(queue=MAILER))) == [f"e1@{MAILER}", f"e2@{MAILER}"]
        assert keys(hand.claim()) == ["next"]


def test_a_run_that_publishes_to_a_missing_topic_has_failed_and_holds_up_nobody(aws: Place) -> None:
    hear(aws, MAILER)
    aws.create_queues("q")
    with opened(aws, table=None) as broker:
        broker.enqueue([job("a"), job("b")])
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for claim in hand.claim()}
        wrong, right = done(claims["a"], [event("e1", topic="gone")]), done(claims["b"], [event("e2")])
        with pytest.raises(EnqueueError) as refused:
            hand.settle(right, wrong)
        assert refused.value.place == ("gone", "e1")
        assert "There is no SNS topic gone" in said(refused)
        hand.settle(right)
        assert keys(hand.claim(queue=MAILER)) == [f"e2@{MAILER}"]
