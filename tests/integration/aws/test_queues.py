"""Tests of finding the SQS queues of a queue, of boto3 clients, and of the error sentences for failed AWS calls."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.errors import AWSError, ConditionError, DeniedError, MissingError, MissingQueueError, explain
from laneway.brokers.aws.settings import AWSSettings
from laneway.brokers.aws.sqs.queues import SQSQueues
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.urls import Url
from tests.support.aws.brokers import make_account
from tests.support.aws.servers import ACCOUNT, FakeServer, MotoServer

AWS = FakeServer | MotoServer


_clients: dict[str, Clients] = {}


@pytest.fixture(scope="module", autouse=True)
def _closing() -> Iterator[None]:
    yield
    while _clients:
        _clients.popitem()[1].close()


def clients_of(settings: AWSSettings) -> Clients:
    """Clients that tests share: making them takes longer than a test."""
    clients = _clients.setdefault(settings.endpoint or "", Clients(settings))
    clients.requests.clear()
    return clients


def queues_of(server: AWS, clock: ManualClock | None = None, **options: Any) -> tuple[SQSQueues, Clients]:
    settings = server.settings(**options)
    clients = clients_of(settings)
    return make_account(server, settings=settings, clock=clock or ManualClock(), clients=clients).queues, clients


def test_a_queue_is_the_sqs_queue_of_its_name(aws: AWS) -> None:
    aws.create_queue("shop-mail")
    aws.create_queue("shop-mail.fifo")
    queues, clients = queues_of(aws, prefix="shop-")
    found = queues.existing("mail")
    assert [(each.queue, each.name, each.fifo) for each in found] == [
        ("mail", "shop-mail", False),
        ("mail", "shop-mail.fifo", True),
    ]
    assert [queues.of("mail", False), queues.of("mail", True)] == found
    assert queues.attributes(found[1])["FifoQueue"] == "true"
    assert queues.known() == ["mail"]
    assert clients.requests == {"sqs.GetQueueUrl": 2, "sqs.GetQueueAttributes": 1}


def test_what_is_missing_is_looked_for_again_after_a_minute(fake: FakeServer) -> None:
    clock = ManualClock()
    queues, clients = queues_of(fake, clock)
    with pytest.raises(MissingError) as caught:
        queues.of("mail", True)
    assert str(caught.value) == (
        f"There is no SQS queue mail.fifo at {fake.endpoint}, which the keyed tasks of the queue mail need; create it "
        "with `laneway aws create`."
    )
    fake.create_queue("mail.fifo")
    clock.advance(59)
    assert queues.existing("mail") == []
    clock.advance(2)
    assert [each.name for each in queues.existing("mail")] == ["mail.fifo"]
    asked = clients.requests.total()
    assert queues.of("mail", True).name == "mail.fifo"
    assert clients.requests.total() == asked


def test_what_aws_says_is_gone_is_looked_for_again(fake: FakeServer) -> None:
    clock = ManualClock()
    fake.create_queue("mail")
    queues, _ = queues_of(fake, clock)
    sqs_queue = queues.of("mail", False)
    queues.forget(sqs_queue)
    assert queues.existing("mail") == []
    clock.advance(61)
    assert queues.existing("mail") == [sqs_queue]


def test_the_queue_of_the_url_is_default_and_is_not_looked_up(fake: FakeServer) -> None:
    fake.create_queue("jobs")
    url = fake.create_queue("jobs.fifo")
    settings = AWSSettings.from_url(Url.parse(url.replace("localhost", "127.0.0.1")), {})
    assert (settings.account, settings.endpoint) == (ACCOUNT, fake.endpoint)
    clients = clients_of(settings)
    queues = make_account(fake, settings=settings, clock=ManualClock(), clients=clients).queues
    assert queues.of("default", True).url == settings.default_url
    assert not clients.requests
    assert queues.of("default", False).name == "jobs"
    assert clients.requests == {"sqs.GetQueueUrl": 1}


def test_dead_letters_go_where_the_redrive_policy_says(aws: AWS) -> None:
    aws.create_queues("mail")
    queues, clients = queues_of(aws)
    for fifo in (False, True):
        dead = queues.dead_letter_queue(queues.of("mail", fifo))
        assert dead is not None
        assert (dead.queue, dead.name, dead.fifo) == ("mail", "mail-deadletter" + ".fifo" * fifo, fifo)
    asked = clients.requests.total()
    queues.dead_letter_queue(queues.of("mail", True))
    assert clients.requests.total() == asked


def test_without_a_policy_dead_letters_are_found_by_name(aws: AWS) -> None:
    clock = ManualClock()
    aws.create_queue("mail.fifo")
    queues, _ = queues_of(aws, clock)
    sqs_queue = queues.of("mail", True)
    assert queues.dead_letter_queue(sqs_queue) is None
    aws.create_queue("mail-deadletter.fifo")
    clock.advance(61)
    dead = queues.dead_letter_queue(sqs_queue)
    assert dead is not None
    assert (dead.name, dead.fifo) == ("mail-deadletter.fifo", True)


def test_a_name_that_sqs_does_not_take_is_told(fake: FakeServer) -> None:
    queues, _ = queues_of(fake, prefix="x" * 70)
    with pytest.raises(MissingError, match="SQS takes 80 characters at most; give the queue a shorter name"):
        queues.of("mail-of-all", False)


# -- calling ------------------------------------------------------------------------------------------


def test_errors_of_aws_are_laneways(aws: AWS) -> None:
    aws.create_table("waiting")
    clients = clients_of(aws.settings())
    with pytest.raises(MissingError):
        clients.sqs("get_queue_url", QueueName="nothing")
    with pytest.raises(MissingError):
        clients.dynamodb("describe_table", TableName="nothing")
    with pytest.raises(ConditionError):
        clients.dynamodb(
            "put_item",
            TableName="waiting",
            Item={"scheduler": {"S": "a"}, "job_id": {"S": "b"}},
            ConditionExpression="attribute_exists(job_id)",
        )
    with pytest.raises(AWSError) as caught:
        clients.sqs("send_message", QueueUrl=7, MessageBody={"canary": 1})
    assert "canary" not in str(caught.value)
    assert caught.value.code == "ParamValidationError"


def answer(code: str, status: int = 400, message: str = "words.") -> Any:
    from botocore.exceptions import ClientError

    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return explain(ClientError(response, "SendMessage"), "SQS in eu-west-1", "sqs:SendMessage")


@pytest.mark.parametrize(
    ("code", "status", "kind", "sentence"),
    [
        ("com.amazonaws.sqs#QueueDoesNotExist", 400, MissingQueueError, "create it with `laneway aws create`"),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, MissingQueueError, "laneway aws create"),
        ("ConditionalCheckFailedException", 400, ConditionError, "condition"),
        ("ThrottlingException", 400, BrokerAwayError, "is asked more often than it allows"),
        ("Whatever", 429, BrokerAwayError, "is asked more often than it allows"),
        ("RequestThrottled", 403, BrokerAwayError, "is asked more often than it allows"),
        ("OverLimit", 403, BrokerAwayError, "run fewer workers"),
        (
            "InternalError",
            500,
            BrokerAwayError,
            "SQS in eu-west-1 is not well, and sqs:SendMessage was not carried out",
        ),
        ("", 503, BrokerAwayError, "(words)"),
        ("AccessDenied", 403, DeniedError, "give them what `laneway aws iam` prints (AccessDenied: words)."),
        ("ExpiredToken", 403, DeniedError, "have expired; sign in again, or set AWS_ACCESS_KEY_ID"),
        ("InvalidClientTokenId", 403, DeniedError, "does not know these credentials; set AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, DeniedError, "this machine's clock is (SignatureDoesNotMatch)."),
        ("InvalidAttributeValue", 400, AWSError, "refused sqs:SendMessage: InvalidAttributeValue: words."),
    ],
)
def test_what_aws_answers_is_told_in_a_sentence(code: str, status: int, kind: type, sentence: str) -> None:
    error = answer(code, status)
    assert type(error) is kind
    assert sentence in str(error)
    if isinstance(error, AWSError):
        assert error.code == code.rpartition("#")[2]


def test_what_was_signed_is_not_repeated() -> None:
    error = answer("SignatureDoesNotMatch", 403, "The Canonical String should have been 'x-amz-security-token:canary'")
    assert "canary" not in str(error)


def test_a_server_that_is_not_there_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.brokers.aws.clients.ATTEMPTS", 1)
    clients = Clients(AWSSettings(region="us-east-1", endpoint="http://127.0.0.1:1"))
    with pytest.raises(BrokerAwayError) as caught:
        clients.sqs("get_queue_url", QueueName="a")
    assert str(caught.value).startswith("SQS at http://127.0.0.1:1 is away; see that it can be reached from here")
    assert caught.value.__cause__ is None
    clients.close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            AWSSettings(region="eu-west-1"),
            "There are no AWS credentials for SQS in eu-west-1; set AWS_ACCESS_KEY_ID and",
        ),
        (AWSSettings(), "No AWS region is set; give the URL region=…, or set AWS_REGION"),
    ],
)
def test_what_boto3_does_not_find_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: AWSSettings, sentence: str
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    clients = Clients(settings)
    with pytest.raises(AWSError) as caught:
        clients.sqs("get_queue_url", QueueName="a")
    assert str(caught.value).startswith(sentence)
    clients.close()


def test_ready_clients_are_used_and_left_open(fake: FakeServer) -> None:
    fake.create_queue("mail")
    ready = fake.client("sqs")
    clients = Clients.of(fake.settings(endpoint="http://127.0.0.1:1"), sqs=ready)
    assert clients.sqs("get_queue_url", QueueName="mail")["QueueUrl"]
    assert clients.sqs("receive_message", QueueUrl=fake.queue_url("mail"))
    assert clients.requests == {"sqs.GetQueueUrl": 1, "sqs.ReceiveMessage": 1}
    clients.close()
    assert ready.get_queue_url(QueueName="mail")["QueueUrl"]
    ready.close()


def test_a_closed_one_opens_itself_again(fake: FakeServer) -> None:
    fake.create_queue("mail")
    clients = Clients(fake.settings())
    for _ in range(2):
        clients.sqs("get_queue_url", QueueName="mail")
        clients.close()
    assert clients.requests == {"sqs.GetQueueUrl": 2}


def test_receiving_outlasts_its_own_wait(fake: FakeServer) -> None:
    fake.create_queue("mail")
    clients = Clients(fake.settings(wait_s=20))
    clients.sqs("get_queue_url", QueueName="mail")
    clients.sqs("receive_message", QueueUrl=fake.queue_url("mail"))
    configs = {name: client.meta.config for name, client in clients._clients.items()}
    assert configs["sqs receiving"].read_timeout > 20 > configs["sqs"].read_timeout
    assert "laneway/" in configs["sqs"].user_agent_extra
    clients.close()


def test_the_child_of_a_fork_has_clients_of_its_own(fake: FakeServer) -> None:
    """In a program of its own: a fork of the tests' process, which has threads, is warned of."""
    fake.create_queue("mail")
    program = (
        "import os, sys\n"
        "from laneway.brokers.aws.clients import Clients\n"
        "from laneway.brokers.aws.settings import AWSSettings\n"
        "clients = Clients(AWSSettings(region='us-east-1', endpoint=sys.argv[1]))\n"
        "clients.sqs('get_queue_url', QueueName='mail')\n"
        "mine = clients._clients['sqs']\n"
        "clients._lock.acquire()\n"  # as another thread may have, at that moment
        "child = os.fork()\n"
        "if not child:\n"
        "    clients.sqs('get_queue_url', QueueName='mail')\n"
        "    os._exit(0 if clients._clients['sqs'] is not mine else 1)\n"
        "clients._lock.release()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "clients.sqs('get_queue_url', QueueName='mail')\n"
        "assert clients._clients['sqs'] is mine\n"
    )
    subprocess.run([sys.executable, "-c", program, fake.endpoint], check=True, timeout=60)
