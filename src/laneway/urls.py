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

from .errors import ConfigError, LanewayError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .broker import Broker, Capabilities, CoreBroker

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


def _memory(url: Url) -> CoreBroker:
    from .brokers.sqlite import MemoryBroker

    return MemoryBroker.from_url(url)


def _sqlite(url: Url) -> CoreBroker:
    from .brokers.sqlite import SQLiteBroker

    return SQLiteBroker.from_url(url)


def _redis(url: Url) -> CoreBroker:
    from importlib.util import find_spec

    if find_spec("redis") is None:  # it is imported later, or never
        raise ConfigError(f"{url.scheme}: URLs need redis-py; pip install 'laneway[redis]'.")
    from .brokers.redis import RedisBroker

    return RedisBroker.from_url(url)


def _aws(url: Url) -> CoreBroker:
    try:
        from .brokers.aws import AWSBroker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise ConfigError(f"{url.scheme}: URLs need boto3; pip install 'laneway[aws]'.") from None
    return AWSBroker.from_url(url)


def _redis_capabilities(url: Url) -> Capabilities:
    from .brokers.redis.settings import CAPABILITIES, RedisSettings

    RedisSettings.from_url(url)
    return CAPABILITIES


def _aws_capabilities(url: Url) -> Capabilities:
    from .brokers.aws.settings import AWSSettings
    from .brokers.aws.unsupported import capabilities

    return capabilities(AWSSettings.from_url(url))


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How the broker of a URL is opened, and what it can do: the latter without its packages."""

    open: Callable[[Url], CoreBroker]
    capabilities: Callable[[Url], Capabilities]


_MEMORY = _Scheme(_memory, lambda url: _memory(url).capabilities)
_SQLITE = _Scheme(_sqlite, lambda url: _sqlite(url).capabilities)
_REDIS = _Scheme(_redis, _redis_capabilities)
_AWS = _Scheme(_aws, _aws_capabilities)
_SCHEMES: dict[str, _Scheme] = {
    "memory": _MEMORY,
    "sqlite": _SQLITE,
    "sqlite3": _SQLITE,
    **dict.fromkeys(("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+unix", "unix"), _REDIS),
    **dict.fromkeys(("valkey", "valkeys", "valkey+cluster", "valkeys+cluster", "valkey+unix"), _REDIS),
    **dict.fromkeys(("sqs", "http", "https"), _AWS),
}


def check_url(text: str) -> Capabilities | None:
    """Check that a URL can be read, and that its settings are possible. Opens nothing.

    Returns what its broker can do. A third-party broker says so when it is opened: None.
    """
    url = Url.parse(text)
    if url.scheme in _SCHEMES:
        return _SCHEMES[url.scheme].capabilities(url)
    _entry_points(url.scheme, "the url given")
    return None


def declared_capabilities(text: str) -> Capabilities | None:
    """What the broker of a URL can do, if that is known before it is opened. A wrong URL fails when it is opened."""
    try:
        return check_url(text)
    except ConfigError:
        return None


def open_broker(text: str, source: str = "the url given") -> Broker:
    """Make the broker of a URL. Third-party schemes come from the entry point group `laneway.brokers`."""
    from .broker import complete

    url = Url.parse(text)
    if url.scheme in _SCHEMES:
        return complete(_SCHEMES[url.scheme].open(url))
    *_, entry = _entry_points(url.scheme, source)
    try:
        make = entry.load()
    except Exception as error:
        raise ConfigError(
            f"The broker for {url.scheme!r} URLs ({source}) cannot be loaded from {entry.value}: {error}"
        ) from error
    try:
        broker: CoreBroker | None = make(url)
    except LanewayError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The broker for {url.scheme!r} URLs ({source}) cannot be made by {entry.value}: {error}"
        ) from error
    if broker is None:
        raise ConfigError(f"The broker for {url.scheme!r} URLs ({source}) is not returned by {entry.value}.")
    return complete(broker)


def _entry_points(scheme: str, source: str) -> Iterable[EntryPoint]:
    """The brokers of other packages for URLs of a scheme; at least one."""
    from importlib import metadata  # a third of what `import laneway` would cost, and rarely needed

    installed = metadata.entry_points(group="laneway.brokers")
    found = installed.select(name=scheme)
    if not found:
        known = [*_SCHEMES, *sorted(installed.names - _SCHEMES.keys())]
        raise ConfigError(
            f"No broker for {scheme!r} URLs is installed ({source}); set LANEWAY_URL to one of "
            f"{', '.join(f'{each}:' for each in known)} or install the package that brings it."
        )
    return found
