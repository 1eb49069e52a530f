"""Parses redis: URLs into RedisSettings. Connects to nothing and does not load redis-py.

`ssl` is loaded only if the URL names certificate files. An unquoted password can end up in any part of a URL. So
errors repeat neither the text before the question mark nor options that may hold a part of a password.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...broker import Capabilities
from ...errors import ConfigError
from ...urls import Url
from ..shared import MAX_TIMEOUT_S
from .keys import Keys

if TYPE_CHECKING:
    from .client.cluster import ClusterServer, Place
    from .client.server import Server

CAPABILITIES = Capabilities(shared=True, remote=True)

OPTIONS = ("prefix", "pool", "pool_timeout", "timeout", "ca", "cert", "key", "verify")
DEFAULT_PORT = 6379
MAX_POOL = 1_000

#: The user and password when the URL has none.
USERNAME_VARIABLE = "LANEWAY_REDIS_USERNAME"
PASSWORD_VARIABLE = "LANEWAY_REDIS_PASSWORD"

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[A-Za-z0-9_.-]*))(?::(?P<port>[0-9]*))?")
_LOOKS = "a redis URL looks like redis://user:password@host:6379/0"
_QUOTED = "special characters in a user or password must be percent-quoted, such as %40 for @"


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The settings in a redis: URL."""

    #: Hosts and ports: several only for a Cluster, none for a Unix socket.
    hosts: tuple[Place, ...] = (("localhost", DEFAULT_PORT),)
    #: The path of a Unix socket.
    path: str | None = None
    cluster: bool = False
    tls: bool = False
    database: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    #: The names of all keys begin with it.
    prefix: str = "laneway"
    #: The most connections of a process to a server, besides those of waiting threads.
    pool: int = 5
    #: Seconds that a call waits for a free connection.
    pool_timeout_s: float = 5.0
    #: Seconds for connecting, and for an answer.
    timeout_s: float = 5.0
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True

    @classmethod
    def from_url(cls, url: Url, environ: Mapping[str, str] = os.environ) -> RedisSettings:
        """The settings of a redis://, rediss://, redis+cluster:// or redis+unix:// URL, or the same with valkey."""
        base, _, way = url.scheme.partition("+")
        unix, cluster, tls = "unix" in (base, way), way == "cluster", base in ("rediss", "valkeys")
        options = _options(url)
        if not url.rest.startswith("//"):
            raise ConfigError(f"The {url.scheme} URL has no // after its scheme; {_LOOKS}.")
        rest = url.rest[2:]
        if rest.startswith("/") and ("@/" if unix else "@") in rest:
            raise ConfigError(
                f"The {url.scheme} URL has a / before its user or password, which stand right after the //, as in "
                f"{url.scheme}://:password@{'/run/redis.sock' if unix else 'host:6379'}."
            )
        credentials, at, where = ("", "", rest) if rest.startswith("/") else rest.rpartition("@")
        username, password = _credentials(credentials if at else None, environ)
        settings: dict[str, Any] = {"username": username, "password": password, "cluster": cluster, "tls": tls}
        if unix:
            if not where.startswith("/") or where == "/":
                raise ConfigError(
                    f"A {url.scheme} URL needs the path of a socket, such as redis+unix:///run/redis/redis.sock."
                )
            settings |= {"path": unquote(where), "hosts": ()}
        else:
            hosts, _, database = where.partition("/")
            settings |= {"hosts": _hosts(hosts, cluster), "database": _database(database, cluster)}
        return cls(**settings, **_checked(options, tls))

    def open(self) -> Server | ClusterServer:
        """The server or the Cluster. Connects to nothing yet."""
        from .client.cluster import ClusterServer
        from .client.connections import Address
        from .client.server import Server

        arguments: dict[str, Any] = {
            "username": self.username,
            "password": self.password,
            "socket_timeout": self.timeout_s,
            "socket_connect_timeout": self.timeout_s,
        }
        if self.path is not None:
            arguments["path"] = self.path
        else:
            arguments |= {"host": self.hosts[0][0], "port": self.hosts[0][1], "socket_keepalive": True}
        if self.tls:
            arguments |= {"ssl_ca_certs": self.ca, "ssl_certfile": self.cert, "ssl_keyfile": self.key}
            arguments |= {"ssl_cert_reqs": "required" if self.verify else "none", "ssl_check_hostname": self.verify}
        if self.database:
            arguments["db"] = self.database
        address = Address.of(self._connection_class(), arguments)
        limits: dict[str, Any] = {
            "pool": self.pool,
            "pool_timeout_s": self.pool_timeout_s,
            "guard_s": self.timeout_s,
        }
        return ClusterServer(address, self.hosts, **limits) if self.cluster else Server(address, **limits)

    def _connection_class(self) -> Any:
        if not self.tls:
            try:
                from .client.socket_connection import SocketConnection
            except ImportError:  # there is no hiredis
                pass
            else:
                return SocketConnection
        from redis import connection

        if self.tls:
            return connection.SSLConnection
        return connection.Connection if self.path is None else connection.UnixDomainSocketConnection


def _options(url: Url) -> dict[str, str]:
    # The text after a ? may be part of an unquoted password. Then errors may repeat neither its names nor its values.
    if any("@" in name or ("@" in value and name not in ("ca", "cert", "key")) for name, value in url.options.items()):
        raise ConfigError(f"The {url.scheme} URL has an @ after its question mark; {_QUOTED} and %3F for ?.")
    return url.take(OPTIONS)


def _credentials(text: str | None, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    username, _, password = (text or "").partition(":")
    if re.search(r"%(?![0-9A-Fa-f]{2})", text or ""):
        raise ConfigError(
            f"The user or password of the redis URL has a % that quotes nothing; {_QUOTED} and %25 for %."
        )
    if password:  # both come from the URL: a user in the environment belongs to the password there
        return unquote(username) or None, unquote(password)
    return (
        unquote(username) or environ.get(USERNAME_VARIABLE) or None,
        environ.get(PASSWORD_VARIABLE) or None,
    )


def _hosts(text: str, cluster: bool) -> tuple[Place, ...]:
    hosts = text.split(",")
    if len(hosts) > 1 and not cluster:
        raise ConfigError("Several hosts are a Redis Cluster; use a redis+cluster: URL for them, or name one host.")
    return tuple(_host(host) for host in hosts)


def _host(text: str) -> Place:
    found = _HOST.fullmatch(text)
    if found is None or any(len(label) > 63 for label in text.split(".")):
        raise ConfigError(
            f"The host and port of the redis URL cannot be read; {_LOOKS}, an IPv6 address stands in brackets, "
            f"and {_QUOTED}."
        )
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65_535:
        raise ConfigError("The port of the redis URL must be 1 to 65535.")
    six = (found["six"] or "").replace("%25", "%")  # the zone of a link-local address
    return six or found["name"] or "localhost", port


def _database(text: str, cluster: bool) -> int:
    if not re.fullmatch(r"[0-9]{0,9}", text):
        raise ConfigError(f"The database of the redis URL must be a whole number from 0 on; {_LOOKS}.")
    if cluster and int(text or 0):
        raise ConfigError(
            "A Redis Cluster has only database 0; leave the number out, and set prefix=… to tell apps apart."
        )
    return int(text or 0)


def _checked(options: Mapping[str, str], tls: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if "prefix" in options:
        settings["prefix"] = Keys(options["prefix"]).prefix
    if "pool" in options:
        text = options["pool"]
        settings["pool"] = check_pool(int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text)
    for name in ("pool_timeout", "timeout"):
        if name in options:
            settings[f"{name}_s"] = _seconds(name, options[name])
    for name in ("ca", "cert", "key", "verify"):
        if name in options and not tls:
            raise ConfigError(f"{name} is for TLS; use a rediss: URL with it.")
    for name in ("ca", "cert", "key"):
        if name in options:
            settings[name] = options[name]
    if "key" in options and "cert" not in options:
        raise ConfigError("key is the key of a certificate; set cert=… too.")
    if not {"ca", "cert"}.isdisjoint(options):
        from .client.tls import files_problem

        if problem := files_problem(options.get("ca"), options.get("cert"), options.get("key")):
            raise ConfigError(problem)
    if "verify" in options:
        if options["verify"] not in ("yes", "no"):
            raise ConfigError(f"verify must be yes or no, not {options['verify']!r}.")
        settings["verify"] = options["verify"] == "yes"
    return settings


def check_pool(pool: object) -> int:
    """Raise ConfigError unless `pool` is a valid number of connections."""
    if not isinstance(pool, int) or isinstance(pool, bool) or not 1 <= pool <= MAX_POOL:
        raise ConfigError(f"pool must be 1 to {MAX_POOL} connections, not {pool!r}.")
    return pool


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise ConfigError(f"{name} must be seconds, not {text!r}.") from None
    if not math.isfinite(seconds) or not 0 < seconds <= MAX_TIMEOUT_S:
        raise ConfigError(f"{name} must be more than 0 and up to {MAX_TIMEOUT_S} seconds, not {text!r}.")
    return seconds
