"""Tests of `sqs:` URLs and of the queue URLs that SQS assigns."""

from __future__ import annotations

import subprocess
import sys

import pytest

from laneway import Laneway
from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.settings import AWSSettings
from laneway.errors import ConfigError
from laneway.urls import Url, check_url, resolve_url, without_secrets

pytestmark = pytest.mark.unit

QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/jobs"
ARN = "arn:aws:sqs:eu-central-1:123456789012:jobs"
LOCAL = "http://localhost:4566/000000000000/jobs"


def settings(url: str, **environ: str) -> AWSSettings:
    return AWSSettings.from_url(Url.parse(url), environ)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqs://", AWSSettings()),
        ("sqs:///", AWSSettings()),
        ("SQS://jobs", AWSSettings(default="jobs")),
        ("sqs://jobs.fifo", AWSSettings(default="jobs")),
        ("sqs://jobs?region=us-gov-west-1", AWSSettings(default="jobs", region="us-gov-west-1")),
        ("sqs://?account=123456789012&prefix=shop-", AWSSettings(account="123456789012", prefix="shop-")),
        ("sqs://?queue=jobs", AWSSettings(default="jobs")),
        (f"sqs://?queue={ARN}", AWSSettings(default="jobs", region="eu-central-1", account="123456789012")),
        (f"sqs://?queue={ARN}.fifo&region=eu-central-1", settings(f"sqs://?queue={ARN}")),
        (
            f"sqs://?queue={QUEUE_URL}",
            AWSSettings(default="jobs", region="eu-central-1", account="123456789012", default_url=QUEUE_URL),
        ),
        (QUEUE_URL, settings(f"sqs://?queue={QUEUE_URL}")),
        (f"{QUEUE_URL}?prefix=a_", settings(f"sqs://?queue={QUEUE_URL}&prefix=a_")),
        (
            f"{QUEUE_URL}.fifo",
            AWSSettings(default="jobs", region="eu-central-1", account="123456789012", default_url=f"{QUEUE_URL}.fifo"),
        ),
        (LOCAL, AWSSettings(default="jobs", endpoint="http://localhost:4566", account="0" * 12, default_url=LOCAL)),
        (
            "http://[::1]:9324/queue/jobs?region=eu-west-1",
            AWSSettings(
                default="jobs",
                endpoint="http://[::1]:9324",
                region="eu-west-1",
                default_url="http://[::1]:9324/queue/jobs",
            ),
        ),
        ("sqs://?endpoint=http://localhost:4566/", AWSSettings(endpoint="http://localhost:4566")),
        (
            "sqs://?table=waiting&partitions=16&poll=0.5&wait=0&max_body=1048576&records=on",
            AWSSettings(table="waiting", partitions=16, poll_s=0.5, wait_s=0, max_body=1_048_576, records=True),
        ),
        ("sqs://?table_suffix=_waiter", AWSSettings(table_suffix="_waiter")),
    ],
)
def test_what_a_url_says(url: str, expected: AWSSettings) -> None:
    assert settings(url) == expected


@pytest.mark.parametrize(
    ("host", "region", "endpoint"),
    [
        ("sqs.eu-central-1.amazonaws.com", "eu-central-1", None),
        ("eu-west-1.queue.amazonaws.com", "eu-west-1", None),
        ("queue.amazonaws.com", "us-east-1", None),
        ("sqs.cn-north-1.amazonaws.com.cn", "cn-north-1", None),
        ("sqs.eu-west-1.api.aws", "eu-west-1", None),
        ("sqs-fips.us-west-2.amazonaws.com", "us-west-2", "https://sqs-fips.us-west-2.amazonaws.com"),
        (
            "vpce-0a1-b2.sqs.us-east-2.vpce.amazonaws.com",
            "us-east-2",
            "https://vpce-0a1-b2.sqs.us-east-2.vpce.amazonaws.com",
        ),
    ],
)
def test_the_region_is_that_of_the_host(host: str, region: str, endpoint: str | None) -> None:
    found = settings(f"https://{host}/123456789012/jobs", AWS_REGION="ap-south-1")
    assert (found.region, found.sqs_endpoint, found.endpoint) == (region, endpoint, None)


def test_without_one_the_region_comes_from_the_environment() -> None:
    assert settings("sqs://", AWS_REGION="eu-west-1", AWS_DEFAULT_REGION="eu-west-2").region == "eu-west-1"
    assert settings("sqs://", AWS_REGION="", AWS_DEFAULT_REGION="eu-west-2").region == "eu-west-2"
    assert settings("sqs://?region=eu-west-3", AWS_REGION="eu-west-1").region == "eu-west-3"
    assert settings(LOCAL, AWS_REGION="eu-west-1").region == "eu-west-1"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqs:jobs", "The sqs URL has no // after its scheme; an sqs URL looks like sqs://name"),
        ("sqs://localhost:4566/jobs", "a server that is not Amazon's is given as endpoint=http://host:port."),
        ("sqs://my.jobs", "The name in the sqs URL must be letters, digits"),
        ("sqs://?color=red", "The sqs broker has no option 'color'; it knows region, endpoint"),
        ("sqs://?region=a&region=b", "The sqs URL has the option region more than once"),
        ("sqs://jobs?queue=jobs", "The sqs URL names its queue twice"),
        (f"{QUEUE_URL}?queue=jobs", "The https URL is that of a queue already"),
        ("sqs://?queue=a.b", "The name of an SQS queue must be 1 to 80 letters"),
        (f"sqs://?queue={'a' * 76}.fifo", "The name of an SQS queue must be 1 to 80 letters"),
        ("sqs://?queue=arn:aws:sns:eu-central-1:123456789012:a", "is not the ARN of an SQS queue"),
        ("sqs://?queue=arn:aws:sqs:eu-central-1:1:a", "is not the ARN of an SQS queue"),
        ("https://sqs.eu-central-1.amazonaws.com/jobs", "https: URLs are those of SQS queues, such as https://sqs."),
        ("https://sqs.eu-central-1.amazonaws.com/1/jobs", "https: URLs are those of SQS queues"),
        ("http://localhost/", "http: URLs are those of SQS queues"),
        ("http:///1/jobs", "http: URLs are those of SQS queues"),
        ("http://localhost:port/1/jobs", "The URL of the queue cannot be read"),
        ("http://[::1/1/jobs", "The URL of the queue cannot be read"),
        (f"{QUEUE_URL}?region=eu-west-1", "The region of the queue is eu-central-1, and region=eu-west-1 says"),
        (f"{QUEUE_URL}?account=210987654321", "The account of the queue is 123456789012, and account="),
        (f"{LOCAL}?endpoint=http://localhost:1", "The endpoint of the queue is http://localhost:4566, and"),
        ("sqs://?region=Frankfurt", "region must be the name of a region, such as eu-central-1, not 'Frankfurt'."),
        ("sqs://?account=12", "account must be the 12 digits of an AWS account, not '12'."),
        ("sqs://?prefix=a.b", "prefix must be 1 to 75 letters, digits, '_' or '-', not 'a.b'."),
        ("sqs://?table=t", "table must be the name of a DynamoDB table"),
        ("sqs://?table_suffix=/", "table_suffix must be letters"),
        ("sqs://?endpoint=localhost:4566", "endpoint must be a URL such as http://localhost:4566, not"),
        ("sqs://?endpoint=http://a/b", "endpoint must be a URL such as"),
        ("sqs://?partitions=0", "partitions must be a whole number from 1 to 1000, not '0'."),
        ("sqs://?wait=21", "wait must be a whole number from 0 to 20, not '21'."),
        ("sqs://?max_body=1048577", "max_body must be a whole number from 1024 to 1048576, not '1048577'."),
        ("sqs://?records=yes", "records must be on or off, not 'yes'."),
        ("sqs://?poll=901", "poll must be more than 0 and up to 900 seconds, not '901'."),
        ("sqs://?poll=nan", "poll must be more than 0"),
        ("sqs://?poll=soon", "poll must be more than 0"),
    ],
)
def test_a_url_that_is_wrong_is_answered_in_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(url)
    assert sentence in str(caught.value)
    with pytest.raises(ConfigError):
        Laneway(url)


@pytest.mark.parametrize(
    "url",
    [
        "sqs://AKIA:canary@",
        "sqs://AKIA:canary@jobs?region=eu-central-1",
        "sqs://AKIA:can/ary@?region=eu-central-1",
        "sqs://AKIA:x?canary=1@",
        "https://AKIA:canary@sqs.eu-central-1.amazonaws.com/123456789012/jobs",
        "sqs://?queue=https://AKIA:canary@localhost/1/jobs",
        "sqs://?endpoint=https://AKIA:canary@localhost",
        "sqs:AKIA:canary",
        "sqs://AKIA:canary",
        "sqs://AKIA/canary",
    ],
)
def test_credentials_in_a_url_are_refused_and_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_url(url)
    assert "canary" not in str(caught.value)
    assert "AKIA" not in str(caught.value)
    assert "AKIA" not in without_secrets(url)
    assert not {"canary", "ary"} & set(without_secrets(url).replace("@", ":").replace("/", ":").split(":"))


@pytest.mark.parametrize("url", ["sqs://", "sqs://jobs", "sqs://jobs.fifo", QUEUE_URL, LOCAL, "sqs://jobs?region=a"])
def test_a_url_is_shown_without_its_options(url: str) -> None:
    assert without_secrets(url) == url.partition("?")[0]


def test_the_queue_url_variable_is_the_default_queue() -> None:
    url, source = resolve_url(None, {"SQS_QUEUE_URL": QUEUE_URL, "REDIS_URL": "redis://a"})
    assert source == "SQS_QUEUE_URL"
    assert settings(url).default_url == QUEUE_URL


@pytest.mark.parametrize("url", ["sqs://jobs", LOCAL, QUEUE_URL])
def test_an_app_is_made_without_boto3(url: str) -> None:
    program = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
        "from laneway import ConfigError, Laneway; app = Laneway(sys.argv[1]); app.close()\n"
        "try: app.broker\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert done.stdout == f"{url.partition(':')[0]}: URLs need boto3; pip install 'laneway[aws]'.\n"


def test_declaring_tasks_does_not_load_boto3() -> None:
    program = "import sys, laneway; laneway.Laneway('sqs://'); assert not {'boto3', 'botocore'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_package_has_nothing_else() -> None:
    from laneway.brokers import aws

    assert aws.AWSBroker is AWSBroker
    with pytest.raises(AttributeError):
        _ = aws.Nothing  # type: ignore[attr-defined]
