"""Tests of compatibility with the Ruby original: its tickets run here, and Laneway writes the bytes that it reads."""

from __future__ import annotations

import json
import time
from typing import Any

from laneway import Laneway
from laneway.brokers.aws.dynamodb.items import RUBY
from tests.support.aws.servers import FakeServer, MotoServer
from tests.support.aws.workers import Tally, app_on, running, wait_until
from tests.support.scenarios import a_ticket_waits_for_its_time

#: As its README writes them, with spaces; another serializer of theirs adds keys of its own.
TICKETS = [
    '{"_job_class": "MyJob", "_job_params": {"ids": [1,2,3]}}',
    '{\n  "_job_class": "MyJob",\n  "_job_params": {"ids": [4]}\n}\n',
    '{"_job_class":"MyJob","_job_params":{"ids":[5]},"_execute_after":1500000000}',
    '{"_job_class": "Clean", "_job_params": null}',
    '{"_job_class": "Clean", "_job_params": {}, "_submitter_host": "ruby-1"}',
]


def declare(app: Laneway, tally: Tally) -> tuple[Any, Any]:
    @app.task
    class MyJob:
        def __init__(self, *, ids: list[int]) -> None:
            self.ids = ids

        def to_dict(self) -> dict[str, Any]:
            return {"ids": self.ids}

        def run(self) -> None:
            tally.note(self.ids)

    @app.task
    class Clean:
        def run(self) -> None:
            tally.note("clean")

    return MyJob, Clean


def test_tickets_of_the_ruby_original_run(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    url = aws.queue_url("default")
    with app_on(aws) as app:
        tally = Tally()
        declare(app, tally)
        for ticket in TICKETS:
            aws.sqs_client.send_message(QueueUrl=url, MessageBody=ticket)
        with running(app):
            tally.wait_for(len(TICKETS))
            wait_until(lambda: aws.counts("default") == (0, 0, 0))
        assert sorted(map(str, tally.ran)) == ["[1, 2, 3]", "[4]", "[5]", "clean", "clean"]
        assert aws.counts("default-deadletter") == (0, 0, 0)


def test_a_ticket_of_the_ruby_original_waits_hop_by_hop_and_keeps_what_is_in_it(fake: FakeServer) -> None:
    fake.create_queues("default")
    at = int(time.time()) + 5_000
    strange = '{"_submitter_host": "ruby-1", "_job_class": "Clean", "_job_params": null, "_execute_after": %s}'
    theirs = {"origin": {"DataType": "String", "StringValue": "rails"}}
    with app_on(fake) as app:
        tally = Tally()
        declare(app, tally)
        url = fake.queue_url("default")
        fake.sqs_client.send_message(QueueUrl=url, MessageBody=strange % at, MessageAttributes=theirs)
        soon = time.time() + 1.0
        fake.sqs_client.send_message(QueueUrl=url, MessageBody=strange % soon)
        with running(app):
            tally.wait_for(1)
            assert time.time() >= soon
            wait_until(lambda: fake.counts("default") == (0, 0, 1))
        (waiting,) = fake.queues["default"].messages
        assert 890 < waiting.visible_at - waiting.sent_at <= 900
        assert list(json.loads(waiting.body).items()) == [
            ("_submitter_host", "ruby-1"), ("_job_class", "Clean"), ("_job_params", None), ("_execute_after", at),
        ]  # fmt: skip
        assert waiting.attributes["origin"]["StringValue"] == "rails"
        assert tally.ran == ["clean"]


def test_a_ticket_of_the_ruby_original_waits_for_its_time(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    with app_on(aws) as app:
        a_ticket_waits_for_its_time(app)


def test_a_body_that_is_no_ticket_is_buried_at_once(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    with app_on(aws) as app:
        tally = Tally()
        declare(app, tally)
        for body in ("no ticket", '{"Records":[]}', TICKETS[0]):
            aws.sqs_client.send_message(QueueUrl=aws.queue_url("default"), MessageBody=body)
        with running(app):
            tally.wait_for(1)
            wait_until(lambda: aws.counts("default") == (0, 0, 0))
        buried = app.broker.inspect.listing("default", "dead").jobs
        assert sorted(job.payloads[0].body for job in buried) == ["no ticket", '{"Records":[]}']
        assert all("The body is not a ticket" in (job.error or "") for job in buried)


def test_tickets_written_here_have_the_bytes_that_the_ruby_original_reads(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    with app_on(aws) as app:
        my_job, clean = declare(app, Tally())
        app.enqueue(my_job(ids=[1, 2, 3]))
        app.enqueue(clean())
        app.enqueue_many([my_job(ids=[]), clean(), clean()])
        messages = aws.receive_all("default")
    bodies = [message["Body"] for message in messages]
    with_ids = '{"_job_class":"MyJob","_job_params":{"ids":[1,2,3]}}'
    without, empty = '{"_job_class":"Clean","_job_params":null}', '{"_job_class":"MyJob","_job_params":{"ids":[]}}'
    assert sorted(bodies) == sorted([with_ids, without, empty, without, without])
    assert [set(message["MessageAttributes"]) for message in messages] == [{"laneway"}] * 5


def test_a_delay_beyond_what_sqs_does_is_written_as_the_ruby_original_reads_it(fake: FakeServer) -> None:
    fake.create_queues("default")
    at = int(time.time()) + 10_000
    with app_on(fake) as app:
        my_job, _ = declare(app, Tally())
        app.using(perform_at=at).enqueue(my_job(ids=[1]))
        (message,) = fake.queues["default"].messages
    assert message.body == f'{{"_job_class":"MyJob","_job_params":{{"ids":[1]}},"_execute_after":{at}}}'


def test_an_item_of_the_ruby_waiter_is_sent_and_run(aws: MotoServer | FakeServer) -> None:
    """Its poller, like ours, finds the queue in the body; what the item says is sent as JSON."""
    aws.create_queues("default")
    aws.create_table("default")
    body = {
        "_job_class": {"S": "MyJob"},
        "_job_params": {"M": {"ids": {"L": [{"N": "7"}, {"N": "8"}]}}},
        "queue_name": {"S": "default"},
    }
    item = {
        "scheduler": {"S": RUBY}, "job_id": {"S": "6b1e"}, "perform_at": {"N": str(int(time.time()) - 60)},
        "sqs_message_body": {"M": body}, "sqs_message_attributes": {"M": {}},
    }  # fmt: skip
    aws.dynamodb_client.put_item(TableName="default", Item=item)
    with app_on(aws) as app:
        tally = Tally()
        declare(app, tally)
        with running(app):
            tally.wait_for(1)
            wait_until(lambda: not [each for each in aws.items("default") if "perform_at" in each])
    assert tally.ran == [[7, 8]]
