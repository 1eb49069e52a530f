"""The real AWS: `make test-aws` runs the tests that use the fixture `aws` in the developer's own account.

boto3 finds credentials and region as usual. Each queue, table and topic of a test is named
`laneway-test-<random>-<number>-…` on AWS. Every boto3 client of this process translates the names in requests and
responses, so neither the tests nor Laneway know about it. No name is used twice, because AWS does not accept a name
again within a minute. Existing resources are never touched. All created resources are deleted after each test, and
at the end of the session even if a test fails.

`AWS_ENDPOINT_URL` selects another server: that is how this file is tried without an account, on moto's server.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from laneway.brokers.aws.settings import AWSSettings
from tests.support.aws.endpoints import WAIT_S, Place

#: SQS counts its messages right only a while after the last of them was sent.
PATIENCE_S = 90.0
_ARN = re.compile(r"(arn:[^:]+:s[qn]s:[^:]*:[0-9]*:)([\w.-]+)")
#: AWS asks for a second between the making of a queue and its use.
QUEUE_S = 1.0
#: SQS may take up to a minute to follow a policy, and what SNS sends before is lost.
POLICY_S = 60.0


class Eventual:
    """A value that AWS tells only after a while: it is asked again until it is what it is compared with."""

    __hash__ = None  # type: ignore[assignment]  # it has no value of its own

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def __eq__(self, other: object) -> bool:
        until = time.monotonic() + PATIENCE_S
        while self._ask() != other:
            if time.monotonic() > until:
                return False
            time.sleep(0.5)
        return True

    def __getitem__(self, number: int) -> Eventual:
        return Eventual(lambda: self._ask()[number])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask())

    def __repr__(self) -> str:
        return repr(self._ask())


class Names:
    """Translates the names of queues, tables and topics on their way to AWS and back, and knows what was made."""

    def __init__(self) -> None:
        self.session = f"laneway-test-{secrets.token_hex(4)}-"
        self._number = 0
        self.queues: list[str] = []
        self.tables: list[str] = []
        self.topics: list[str] = []

    @property
    def prefix(self) -> str:
        return f"{self.session}{self._number}-"

    def next(self) -> None:
        """From now on all names mean others."""
        self._number += 1

    def attach(self, client: Any) -> None:
        service = client.meta.service_model.service_id.hyphenize()
        if service in ("sqs", "dynamodb", "sns"):
            client.meta.events.register(f"provide-client-params.{service}", self._there)
            client.meta.events.register(f"after-call.{service}", self._back)

    def full(self, name: str) -> str:
        return name if name.startswith(self.prefix) else self.prefix + name

    def short(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def _full_arns(self, text: str) -> str:
        return _ARN.sub(lambda found: found[1] + self.full(found[2]), text)

    def _there(self, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        for field in ("QueueName", "TableName", "Name"):
            if field in params and ":" not in params[field]:
                params = {**params, field: self.full(params[field])}
        for field in ("TopicArn", "SubscriptionArn", "ResourceArn", "Endpoint"):
            if field in params:
                params = {**params, field: self._full_arns(params[field])}
        for name in ("RedrivePolicy", "Policy"):
            if name in (attributes := params.get("Attributes") or {}):
                params = {**params, "Attributes": {**attributes, name: self._full_arns(attributes[name])}}
        if "RequestItems" in params:
            params = {**params, "RequestItems": {self.full(n): v for n, v in params["RequestItems"].items()}}
        return params

    def _back(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "CreateQueue" and "QueueUrl" in parsed:
            self.queues.append(parsed["QueueUrl"])
        if model.name == "CreateTopic" and "TopicArn" in parsed:
            self.topics.append(parsed["TopicArn"])
        for field in ("Topics", "Subscriptions"):
            if field in parsed:  # what others have is nobody's business
                parsed[field] = [each for each in parsed[field] if f":{self.prefix}" in each["TopicArn"]]
        for told in (parsed, *parsed.get("Topics", ()), *parsed.get("Subscriptions", ())):
            for field in ("TopicArn", "SubscriptionArn", "Endpoint"):
                if field in told:
                    told[field] = told[field].replace(self.prefix, "")
        for message in parsed.get("Messages", ()):
            if '"Notification"' in message["Body"]:  # an envelope
                message["Body"] = message["Body"].replace(self.prefix, "")
        for field in ("Table", "TableDescription"):
            if field in parsed:
                name = parsed[field]["TableName"]
                parsed[field]["TableName"] = self.short(name)
                if model.name == "CreateTable":
                    self.tables.append(name)
        for attributes in (parsed, *parsed.get("Messages", ())):
            for name, value in (attributes.get("Attributes") or {}).items():
                if "arn:" in value:
                    attributes["Attributes"][name] = value.replace(self.prefix, "")
        for field in ("Responses", "UnprocessedItems", "UnprocessedKeys"):
            if isinstance(parsed.get(field), dict):
                parsed[field] = {self.short(name): value for name, value in parsed[field].items()}


class RealPlace(Place):
    """AWS, or what AWS_ENDPOINT_URL names."""

    endpoint = ""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._session = boto3.session.Session()
        assert self._session.region_name, "Set AWS_DEFAULT_REGION, or a profile that has a region (AWS_PROFILE)."

    def settings(self, **options: Any) -> AWSSettings:
        return AWSSettings(**{"region": self._session.region_name, "wait_s": WAIT_S, **options})

    def client(self, service: str, **config: Any) -> Any:
        config = {"retries": {"mode": "standard", "total_max_attempts": 5}, "max_pool_connections": 20, **config}
        return self._session.client(service, config=Config(**config))

    def create_queue(self, name: str, **attributes: Any) -> str:
        url = super().create_queue(name, **attributes)
        time.sleep(QUEUE_S)
        return url

    def let_in(self, queue: str, topic_arn: str) -> None:
        super().let_in(queue, topic_arn)
        time.sleep(POLICY_S)

    def create_table(self, name: str) -> None:
        super().create_table(name)
        self.dynamodb_client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})

    @cached_property
    def account(self) -> str:
        return str(self.sts_client.get_caller_identity()["Account"])

    def arn(self, queue_url: str) -> str:
        name = self.names.short(queue_url.rpartition("/")[2])
        return f"arn:aws:sqs:{self._session.region_name}:{self.account}:{name}"

    def counts(self, name: str) -> Any:
        return Eventual(lambda: super(RealPlace, self).counts(name))

    def receive_all(self, name: str) -> list[dict[str, Any]]:
        """As elsewhere; SQS may have to be asked more than once."""
        got = super().receive_all(name)
        return got + super().receive_all(name)

    def _receive(self, url: str) -> list[dict[str, Any]]:
        wanted = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"], "WaitTimeSeconds": 1}
        answer = self.sqs_client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, **wanted)
        return list(answer.get("Messages", []))

    # -- making and deleting ---------------------------------------------------------------------------

    def begin(self) -> None:
        """New names for a new test."""
        self.clean()
        self.names.next()

    def clean(self) -> None:
        """Delete what the last test has made."""
        names = self.names
        while names.queues:
            with suppress(ClientError):  # the test has deleted it itself
                self.sqs_client.delete_queue(QueueUrl=names.queues.pop())
        while names.tables:
            with suppress(ClientError):  # the same, or it is only being made
                self.dynamodb_client.delete_table(TableName=names.tables.pop())
        while names.topics:  # to delete it twice is no error
            self.sns_client.delete_topic(TopicArn=names.topics.pop())

    def end(self) -> None:
        """Delete all that is left of this session, whoever made it."""
        self.clean()
        prefix = self.names.session
        for page in self.sqs_client.get_paginator("list_queues").paginate(QueueNamePrefix=prefix):
            for url in page.get("QueueUrls", ()):
                self.sqs_client.delete_queue(QueueUrl=url)
        for page in self.dynamodb_client.get_paginator("list_tables").paginate():
            for name in page["TableNames"]:
                if name.startswith(prefix):
                    self._delete_table(name)
        self.forget_clients()

    def _delete_table(self, name: str) -> None:
        until = time.monotonic() + PATIENCE_S
        number = name.removeprefix(self.names.session).partition("-")[0]
        self.names._number = int(number)
        while True:
            try:
                self.dynamodb_client.delete_table(TableName=name)
            except ClientError as error:
                if error.response["Error"]["Code"] != "ResourceInUseException" or time.monotonic() > until:
                    return  # it is being deleted, or gone
                time.sleep(1)
            else:
                return


@pytest.fixture(scope="session")
def _real() -> Iterator[RealPlace]:
    names = Names()
    make = botocore.session.Session.create_client

    def create_client(self: Any, *args: Any, **kwargs: Any) -> Any:
        client = make(self, *args, **kwargs)
        names.attach(client)
        return client

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session.Session, "create_client", create_client)
        place = RealPlace(names)
        try:
            yield place
        finally:
            place.end()


@pytest.fixture
def real(_real: RealPlace) -> Iterator[RealPlace]:
    """AWS, where nothing has the names that the test gives."""
    _real.begin()
    yield _real
    _real.clean()
