"""Tests that the policy of `laneway aws iam` is sufficient, also when other apps share the table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from laneway import Laneway
from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.admin.iam import AccountLocation as Somewhere
from laneway.brokers.aws.admin.iam import policy
from laneway.brokers.aws.admin.needs import QueueRequirement, needs_of
from laneway.brokers.aws.admin.resources.resource import Role
from laneway.cli.findings import examine
from laneway.errors import BrokerError
from laneway.jobs.data import Hints
from laneway.testing.conformance.fixtures import call, job
from tests.support.aws.brokers import TABLE, opened, ready, turn_on_ttl
from tests.support.aws.endpoints import ACCOUNT, REGION, Place
from tests.support.aws.iam_guard import Guarded, guarded
from tests.support.aws.listener_app import TOPIC, create, shop
from tests.support.aws.workers import Tally, running, wait_until

DAY = 86_400.0


@contextmanager
def allowed(place: Place, role: Role, *queues: str, inline: bool = True, **options: Any) -> Iterator[AWSBroker]:
    """A broker of somebody who may do what is printed for a role of an app with these queues."""
    settings = place.settings(**{"table": TABLE, **options})
    needs = {queue: QueueRequirement(queue) for queue in queues}
    with opened(place, **options) as other:
        made = policy(role, other.account, needs, Somewhere(REGION, ACCOUNT))
    broker = AWSBroker(settings, clients=guarded(place, settings, made), inline=inline)
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def shared(fake: Place) -> Place:
    """Queues `q`, `default` and `theirs`, and a table with something of each."""
    with ready(fake, "q", "default", "theirs") as broker:
        turn_on_ttl(fake)
        for queue in ("default", "theirs"):
            broker.operate.pause(queue)
            broker.enqueue([job(f"job of {queue}", queue=queue, delay_s=0.01, hints=Hints(cancellable=True))])
            broker.enqueue([call("k", f"call of {queue}", queue=queue, delay_s=0.01)])
    return fake


@pytest.mark.parametrize("role", ["worker", "operator"])
def test_queues_of_others_are_left_out(shared: Place, role: Role) -> None:
    with allowed(shared, role, "q") as broker:
        broker.declare("q", 1)
        assert broker.inspect.queues() == {"q": 1}
        assert [each.queue for each in broker.inspect.stats()] == ["q"]
        assert broker.inspect.workers() == []
    with allowed(shared, role, "q") as broker:  # and without an app, where the table says which queues there are
        assert broker.inspect.queues() == {}
        assert broker.inspect.stats() == []
        assert broker.inspect.workers() == []


def test_a_queue_that_one_may_only_send_to_is_left_out(shared: Place) -> None:
    with allowed(shared, "worker", "q") as broker, allowed(shared, "producer", "theirs") as producer:
        assert isinstance(broker.account.clients, Guarded)
        assert isinstance(producer.account.clients, Guarded)
        broker.account.clients.policy["Statement"] += producer.account.clients.policy["Statement"]
        broker.declare("q", 1)
        broker.enqueue([job("sent", queue="theirs")])
        assert [each.queue for each in broker.inspect.stats()] == ["q"]


def test_the_queue_that_the_url_names_is_looked_at(shared: Place) -> None:
    with allowed(shared, "operator", "default", table=None, default="q", names_default=True) as broker:
        assert broker.inspect.queues() == {"default": 1}


def test_a_queue_of_the_app_that_may_not_be_looked_at_is_an_error(shared: Place) -> None:
    with allowed(shared, "worker", "q") as broker:
        broker.declare("theirs", 1)
        with pytest.raises(Exception, match="sqs:GetQueueUrl"):
            broker.inspect.stats()


def test_a_worker_runs_and_polls_a_table_that_others_use(shared: Place, caplog: pytest.LogCaptureFixture) -> None:
    with allowed(shared, "worker", "q", inline=False) as broker:
        app, tally = Laneway(broker=broker), Tally()

        @app.task(queue="q")
        def note(number: int) -> None:
            tally.note(number)

        note.enqueue(1)
        note.using(delay=0.01, cancellable=True).enqueue(2)
        with caplog.at_level(logging.WARNING), running(app):
            tally.wait_for(2)
        assert not caplog.messages
        assert [finding.text for finding in examine(app, "shop") if finding.level == "problem"] == []


def test_a_worker_hears_and_publishes(fake: Place, caplog: pytest.LogCaptureFixture) -> None:
    """What it listens to is there already: it only has to see that."""
    with opened(fake, table=None) as broker:
        create(broker, shop(broker), publishes=["eventboss-shop-shipped-test"])
        needs = needs_of(shop(broker))
        made = policy("worker", broker.account, needs, Somewhere(REGION, ACCOUNT), ["eventboss-shop-*-test"])
    settings = fake.settings(table=None)
    broker = AWSBroker(settings, clients=guarded(fake, settings, made))
    app, tally = Laneway(broker=broker, name="shop", env="test"), Tally()

    @app.listener("sold", source="stock")
    def ship(order: int) -> None:
        app.publish("shipped", order)
        tally.note(order)

    assert isinstance(broker.account.clients, Guarded)
    with caplog.at_level(logging.WARNING), running(app):
        fake.sns_client.publish(TopicArn=broker.account.topics.arn(TOPIC), Message="7")
        tally.wait_for(1)
    assert broker.account.clients.denied == []
    assert not caplog.messages
    with pytest.raises(BrokerError, match="sns:Publish"):
        app.publish("holiday", 1, generic=True)
    broker.close()


def test_a_queue_that_nobody_knows_is_told_once_a_process(fake: Place, caplog: pytest.LogCaptureFixture) -> None:
    with ready(fake, "q") as broker, opened(fake) as producer:
        urls = [fake.create_queue(name) for name in ("gone", "gone.fifo")]
        producer.enqueue([job("plain", queue="gone", delay_s=901), call("k", "keyed", queue="gone", delay_s=0.01)])
        for url in urls:
            fake.sqs_client.delete_queue(QueueUrl=url)
        for _ in range(2):  # a worker that is stopped and started again
            poller, _ = broker.health.duties(["q"])
            wait_until(lambda poller=poller: poller.round() <= 30)
            broker.operate.run_now("gone", ["plain"])
        assert len(caplog.messages) == 1
        assert "laneway delayed -Q gone" in caplog.messages[0]


def test_the_poller_sends_what_it_may(shared: Place, caplog: pytest.LogCaptureFixture) -> None:
    with allowed(shared, "worker", "q") as broker:
        broker.declare("q", 1)
        broker.enqueue([job("mine", delay_s=0.01, hints=Hints(cancellable=True))])
        poller, _ = broker.health.duties(["q"])
        with caplog.at_level(logging.WARNING):
            wait_until(lambda: poller.round() >= 0 and sum(shared.counts("q")) == 1)
        assert not caplog.messages
    left = [item["job_id"]["S"] for item in shared.items(TABLE) if "perform_at" in item]
    assert sorted(left) == ["call of default", "call of theirs", "job of default", "job of theirs"]
