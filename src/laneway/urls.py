"""Broker URLs: finds, parses and checks a URL, prints it without secrets, and opens its broker.

The Redis and AWS brokers are imported only when they are opened: checking a URL opens nothing, and needs neither
redis-py nor boto3. Third-party schemes come from the entry point group `laneway.brokers`; their URLs are left to
their brokers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .broker import Broker

DEFAULT_URL = "sqlite:///laneway.db"
#: Where the URL comes from when none is given, in this order.
URL_VARIABLES = ("LANEWAY_URL", "SQS_QUEUE_URL", "REDIS_URL")


def resolve_url(url: str | None, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The broker's URL, and where it came from."""
    if url:
        return url, "the url given"
    for variable in URL_VARIABLES:
        if environ.get(variable):
            return environ[variable], variable
    return DEFAULT_URL, "the default"


@dataclass(frozen=True, slots=True)
class Url:
    """A broker URL in its parts."""

    scheme: str
    #: Whatever stands between the scheme and the question mark; a password may be in it.
    rest: str = field(repr=False)
    options: Mapping[str, str]
    #: Options that stand in it more than once.
    repeated: Sequence[str] = ()

    @classmethod
    def parse(cls, text: str) -> Url:
        scheme, colon, rest = text.partition(":")
        scheme = scheme.lower()
        if scheme not in ("memory", "sqlite", "sqlite3") and _PLACE.fullmatch(text):
            raise ConfigError(
                f"{text!r} is a host and a port, and no broker URL; give redis://{text} for Redis or Valkey, or one "
                f"such as {DEFAULT_URL}."
            )
        if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise ConfigError(
                f"{without_secrets(text)!r} is not a broker URL; give one such as {DEFAULT_URL}, redis://host:6379/0 "
                "or memory:."
            )
        rest, _, query = rest.partition("?")
        options = parse_qsl(query, keep_blank_values=True)
        names = [name for name, _ in options]
        return cls(scheme, rest, dict(options), [name for name in dict.fromkeys(names) if names.count(name) > 1])

    def take(self, known: Sequence[str]) -> dict[str, str]:
        """The options, if all of them are known."""
        if unknown := sorted(set(self.options) - set(known)):
            raise ConfigError(
                f"The {self.scheme} broker has no option {unknown[0]!r}; it knows {', '.join(known) or 'none'}."
            )
        if self.repeated:
            raise ConfigError(f"The {self.scheme} URL has the option {self.repeated[0]} more than once; leave one.")
        return dict(self.options)


#: A host and a port without a scheme before them.
_PLACE = re.compile(r"[A-Za-z0-9_.-]+:[0-9]{1,5}(?:/[0-9]*)?")


def without_secrets(url: str) -> str:
    """A URL as it may be printed: without user, password and options, also if it has been mistyped."""
    scheme, slashes, _ = url.partition("://")
    if scheme.lower() in ("sqlite", "sqlite3"):  # what looks like a user is a part of a path
        return url.partition("?")[0]
    # To the last @: a password that was not quoted may hold any of / ? # and @ itself.
    before, at, host = url.rpartition("@")
    if not at and _SQS.match(url):  # a key and its secret that somebody has put into it
        return "sqs://…"
    if not at:
        return url.partition("?")[0]
    known = _SCHEME.match(before)
    shown = f"{scheme}://" if slashes and "@" not in scheme else known[0] if known else ""
    return f"{shown}…@{host.partition('?')[0]}"


#: An sqs: URL with more in it than the name of a queue.
_SQS = re.compile(r"sqs:(?!(?://)?[\w-]*(?:\.fifo)?/?(?:\?|$))", re.IGNORECASE)

#: What a mistyped URL begins with, as far as it cannot be a secret.
_SCHEME = re.compile(r"(?:(?:redis|valkey)s?(?:\+\w+)?|unix|sqs)?")


def _memory(url: Url) -> Broker:
    from .brokers.memory.broker import MemoryBroker

    return MemoryBroker.from_url(url)


def _sqlite(url: Url) -> Broker:
    from .brokers.sqlite import SQLiteBroker

    return SQLiteBroker.from_url(url)


def _redis(url: Url) -> Broker:
    try:
        from .brokers.redis import RedisBroker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":  # redis-py's name
            raise
        raise ConfigError(f"{url.scheme}: URLs need redis-py; pip install 'laneway[redis]'.") from None
    return RedisBroker.from_url(url)


def _aws(url: Url) -> Broker:
    try:
        from .brokers.aws import AWSBroker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise ConfigError(f"{url.scheme}: URLs need boto3; pip install 'laneway[aws]'.") from None
    return AWSBroker.from_url(url)


def _aws_settings(url: Url) -> None:
    from .brokers.aws.settings import AWSSettings  # without boto3: a program that declares tasks may lack it

    AWSSettings.from_url(url)


_BROKERS: dict[str, Callable[[Url], Broker]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite3": _sqlite,
    **dict.fromkeys(("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+unix", "unix"), _redis),
    **dict.fromkeys(("valkey", "valkeys", "valkey+cluster", "valkeys+cluster", "valkey+unix"), _redis),
    **dict.fromkeys(("sqs", "http", "https"), _aws),
}


def check_url(text: str) -> None:
    """See that a URL can be read, and that what it says is possible. Nothing is opened; a stranger's is left to him."""
    url = Url.parse(text)
    if url.scheme not in _BROKERS:
        _entry_points(url.scheme, "the url given")
    elif _BROKERS[url.scheme] is _redis:
        from .brokers.redis.settings import RedisSettings  # without redis-py: a program that declares tasks may lack it

        RedisSettings.from_url(url)
    elif _BROKERS[url.scheme] is _aws:
        _aws_settings(url)
    else:
        _BROKERS[url.scheme](url)


def open_broker(text: str, source: str = "the url given") -> Broker:
    """Make the broker for a URL; strangers' schemes come by the entry point group `laneway.brokers`."""
    url = Url.parse(text)
    if url.scheme in _BROKERS:
        return _BROKERS[url.scheme](url)
    *_, entry = _entry_points(url.scheme, source)
    try:
        make = entry.load()
    except Exception as error:
        raise ConfigError(
            f"The broker for {url.scheme!r} URLs ({source}) cannot be loaded from {entry.value}: {error}"
        ) from error
    broker: Broker = make(url)
    return broker


def _entry_points(scheme: str, source: str) -> Iterable[EntryPoint]:
    """What other packages bring for URLs of a scheme; at least one."""
    from importlib import metadata  # a third of what `import laneway` would cost, and rarely needed

    found = metadata.entry_points(group="laneway.brokers", name=scheme)
    if not found:
        raise ConfigError(
            f"No broker for {scheme!r} URLs is installed ({source}); set LANEWAY_URL to one of "
            f"{', '.join(f'{known}:' for known in _BROKERS)} or install the package that brings it."
        )
    return found
