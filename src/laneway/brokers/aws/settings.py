"""Parses sqs: URLs and the URLs of SQS queues into AWSSettings. Connects to nothing and does not load boto3.

Credentials never belong in a URL: boto3 finds them itself. An error does not repeat the parts of a URL in
which a user may have put credentials.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ...broker import MAX_BODY
from ...config import DEFAULT_QUEUE
from ...errors import ConfigError
from ...events.event import LONGEST_NAME
from ...urls import Url

OPTIONS = (
    *("region", "endpoint", "account", "queue", "prefix", "table", "table_suffix"),
    *("partitions", "poll", "wait", "max_body", "records"),
)
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
#: The limits of SQS: the length of a queue's name, the wait of a receive, and how long it delays or hides a message.
MAX_NAME = LONGEST_NAME
LONGEST_WAIT_S = 20
LONGEST_DELAY_S = 900
LONGEST_VISIBILITY_S = 12 * 3_600
#: The most messages of one request to SQS, and of one answer. SNS has the same limit.
BATCH = 10
#: A poll sends items that are due within the longest delay of SQS. If polls were further apart, items would be late.
LONGEST_POLL_S = LONGEST_DELAY_S
MOST_PARTITIONS = 1_000
#: The bytes of a message, and of a batch of them, that SQS takes by default and SNS at most.
DEFAULT_MESSAGE_BYTES = 262_144

#: Seconds until a queue or a table that was missing is looked for again.
LOOK_AGAIN_S = 60.0

_FIFO = ".fifo"
_LOOKS = "an sqs URL looks like sqs://name?region=eu-central-1"
_CREDENTIALS = (
    "credentials do not belong into an SQS URL, where others would see them; leave them out, and boto3 finds them in "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in a profile or in the role of the machine"
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-[0-9]+")
_ACCOUNT = re.compile(r"[0-9]{12}")
#: The host names of Amazon's servers: current, legacy, and VPC endpoints.
_AMAZON = re.compile(
    r"(?:sqs(?P<fips>-fips)?\.(?P<now>[a-z0-9-]+)|(?P<once>[a-z0-9-]+)\.queue|queue"
    r"|(?P<vpc>[a-z0-9-]+)\.sqs\.(?P<within>[a-z0-9-]+)\.vpce)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)


@dataclass(frozen=True, slots=True)
class AWSSettings:
    """Where the queues and tables are, and how they are used."""

    region: str | None = None
    #: The URL of a server that is not Amazon's, for SQS and DynamoDB.
    endpoint: str | None = None
    #: An endpoint of Amazon for SQS that is not the region's default: FIPS or VPC.
    sqs_endpoint: str | None = None
    #: The account that owns the queues, if it is not that of the credentials.
    account: str | None = None
    #: The name, without `.fifo`, of the SQS queue for the Laneway queue `default`.
    default: str = "default"
    #: The URL of that queue, if it was given.
    default_url: str | None = None
    #: Whether the URL names that queue. If not, the queue may not exist.
    names_default: bool = field(default=False, compare=False)
    #: The prefix of the names of all other queues, of topics and of tables.
    prefix: str = ""
    #: One table for all queues. None: each queue may have its own, named after the SQS queue plus `table_suffix`.
    table: str | None = None
    table_suffix: str = ""
    #: The number of hash values that delayed jobs are spread over.
    partitions: int = 4
    #: Seconds between two polls of a table.
    poll_s: float = 300.0
    #: Seconds that a receive waits for messages.
    wait_s: int = 20
    #: The largest message, and the largest batch of messages, in bytes.
    max_body: int = DEFAULT_MESSAGE_BYTES
    #: Whether the table records how jobs end, so that handles can show it.
    records: bool = False

    @classmethod
    def from_url(cls, url: Url, environ: Mapping[str, str] = os.environ) -> AWSSettings:
        """The settings of an sqs:// URL, or of the https:// URL of an SQS queue."""
        if any("@" in text for text in (url.rest, *url.options, *url.options.values())):
            raise ConfigError(f"The {url.scheme} URL has an @ in it: {_CREDENTIALS}.")
        options = url.take(OPTIONS)
        given = options.pop("queue", "")
        if url.scheme == "sqs":
            name = _named(url.rest)
            if name and given:
                raise ConfigError("The sqs URL names its queue twice; leave queue=… out, or the name after the //.")
            found = _queue(given or name)
        else:
            if given:
                raise ConfigError(f"The {url.scheme} URL is that of a queue already; leave queue=… out.")
            found = _queue(f"{url.scheme}:{url.rest}")
        checked = _checked(options)
        for option in ("region", "account", "endpoint"):
            if option in found and option in checked and found[option] != checked[option]:
                raise ConfigError(
                    f"The {option} of the queue is {found[option]}, and {option}={checked[option]} says otherwise; "
                    "leave the option out."
                )
        settings: dict[str, Any] = {**found, **checked, "names_default": "default" in found}
        if "region" not in settings:
            settings["region"] = _region_around(environ)
        return cls(**settings)

    def name_of(self, queue: str) -> str:
        """The name of a queue on AWS, without `.fifo`."""
        return self.default if queue == DEFAULT_QUEUE else self.prefix + queue

    @property
    def where(self) -> str:
        """Where the queues and tables are, as a phrase for messages."""
        if self.endpoint:
            return f"at {self.endpoint}"
        return f"in {self.region}" if self.region else "in the region of the AWS profile"


def _named(rest: str) -> str:
    """The name in sqs://name."""
    if not rest.startswith("//"):
        raise ConfigError(f"The sqs URL has no // after its scheme; {_LOOKS}.")
    name = rest[2:].removesuffix("/")
    if name and not _NAME.fullmatch(name.removesuffix(_FIFO)):
        raise ConfigError(
            f"The name in the sqs URL must be letters, digits, '_' or '-'; {_LOOKS}, and a server that is not Amazon's "
            "is given as endpoint=http://host:port."
        )
    return name


def _queue(text: str) -> dict[str, Any]:
    """The settings in the name, the ARN or the URL of a queue."""
    if not text:
        return {}
    if text.startswith("arn:"):
        return _of_arn(text)
    if text.startswith(("http:", "https:")):
        return _of_url(text)
    return {"default": _queue_name(text)}


def _of_arn(text: str) -> dict[str, Any]:
    parts = text.split(":")
    if len(parts) != 6 or parts[2] != "sqs" or not _REGION.fullmatch(parts[3]) or not _ACCOUNT.fullmatch(parts[4]):
        raise ConfigError(f"queue={text} is not the ARN of an SQS queue, arn:aws:sqs:region:account:name.")
    return {"region": parts[3], "account": parts[4], "default": _queue_name(parts[5])}


def _of_url(text: str) -> dict[str, Any]:
    try:
        parts = urlsplit(text)
        place = _place(parts)
    except ValueError:
        raise ConfigError("The URL of the queue cannot be read; give it as SQS shows it.") from None
    path = parts.path.strip("/").split("/")
    amazon = _AMAZON.fullmatch(parts.hostname or "")
    if not place or len(path) < 2 or (amazon and (len(path) != 2 or not _ACCOUNT.fullmatch(path[0]))):
        raise ConfigError(
            f"{parts.scheme}: URLs are those of SQS queues, such as "
            "https://sqs.eu-central-1.amazonaws.com/123456789012/name; give one of them, or an sqs:, redis: or "
            "sqlite: URL."
        )
    found: dict[str, Any] = {"default": _queue_name(path[-1]), "default_url": f"{place}/{'/'.join(path)}"}
    if _ACCOUNT.fullmatch(path[-2]):
        found["account"] = path[-2]
    if not amazon:
        return found | {"endpoint": place}
    found["region"] = amazon["now"] or amazon["once"] or amazon["within"] or "us-east-1"
    if amazon["fips"] or amazon["vpc"]:
        found["sqs_endpoint"] = place
    return found


def _place(parts: SplitResult) -> str:
    """Scheme, host and port of a URL; empty if it is not http or https, or has no valid host."""
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9_.:-]+", parts.hostname or ""):
        return ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port is not None else "")


def _queue_name(text: str) -> str:
    if len(text) > MAX_NAME or not _NAME.fullmatch(text.removesuffix(_FIFO)):
        raise ConfigError(
            f"The name of an SQS queue must be 1 to {MAX_NAME} letters, digits, '_' or '-', and its URL or ARN end "
            f"with it, not {text!r}."
        )
    return text.removesuffix(_FIFO)


def _region_around(environ: Mapping[str, str]) -> str | None:
    """The region in the environment; None: boto3 looks in its own files."""
    return next((environ[name] for name in REGION_VARIABLES if environ.get(name)), None)


def _checked(options: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, (pattern, what) in _TEXTS.items():
        if name in options:
            if not pattern.fullmatch(options[name]):
                raise ConfigError(f"{name} must be {what}, not {options[name]!r}.")
            settings[name] = options[name]
    if "endpoint" in options:
        settings["endpoint"] = _endpoint(options["endpoint"])
    for name, (least, most) in _NUMBERS.items():
        if name in options:
            text = options[name]
            if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
                raise ConfigError(f"{name} must be a whole number from {least} to {most}, not {text!r}.")
            settings["wait_s" if name == "wait" else name] = int(text)
    if "records" in options:
        if options["records"] not in ("on", "off"):
            raise ConfigError(f"records must be on or off, not {options['records']!r}.")
        settings["records"] = options["records"] == "on"
    if "poll" in options:
        settings["poll_s"] = _poll(options["poll"])
    return settings


_TEXTS = {
    "region": (_REGION, "the name of a region, such as eu-central-1"),
    "account": (_ACCOUNT, "the 12 digits of an AWS account"),
    "prefix": (re.compile(r"[A-Za-z0-9_-]{1,75}"), "1 to 75 letters, digits, '_' or '-'"),
    "table": (re.compile(r"[A-Za-z0-9_.-]{3,255}"), "the name of a DynamoDB table, 3 to 255 letters, digits or '_.-'"),
    "table_suffix": (re.compile(r"[A-Za-z0-9_.-]{0,170}"), "letters, digits, '_', '-' or '.'"),
}
_NUMBERS = {
    "partitions": (1, MOST_PARTITIONS),
    "wait": (0, LONGEST_WAIT_S),
    "max_body": (1_024, MAX_BODY),
}


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        place = "" if parts.path.strip("/") or parts.query or parts.fragment else _place(parts)
    except ValueError:
        place = ""
    if not place:
        raise ConfigError(f"endpoint must be a URL such as http://localhost:4566, not {text!r}.")
    return place


def _poll(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_POLL_S:
        raise ConfigError(f"poll must be more than 0 and up to {LONGEST_POLL_S} seconds, not {text!r}.")
    return seconds
