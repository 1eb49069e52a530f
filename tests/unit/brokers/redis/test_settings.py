"""Tests of `redis:` and `valkey:` URLs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import valkey

from laneway import Laneway
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.settings import RedisSettings
from laneway.errors import ConfigError
from laneway.urls import Url, open_broker
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer, servers

pytestmark = pytest.mark.unit


def settings(url: str, **environ: str) -> RedisSettings:
    return RedisSettings.from_url(Url.parse(url), environ)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", RedisSettings()),
        ("redis:///", RedisSettings()),
        ("valkey://localhost:6379/0", RedisSettings()),
        ("redis://example.org", RedisSettings(hosts=(("example.org", 6379),))),
        ("redis://:7000/3", RedisSettings(hosts=(("localhost", 7000),), database=3)),
        ("redis://[::1]:7000/15", RedisSettings(hosts=(("::1", 7000),), database=15)),
        ("redis://[fe80::1%25eth0]", RedisSettings(hosts=(("fe80::1%eth0", 6379),))),
        ("redis://[fe80::1%eth0]", RedisSettings(hosts=(("fe80::1%eth0", 6379),))),
        ("rediss://a.b-c_d", RedisSettings(hosts=(("a.b-c_d", 6379),), tls=True)),
        ("valkeys://a?verify=no", RedisSettings(hosts=(("a", 6379),), tls=True, verify=False)),
        (
            "redis+cluster://a,b:7001,[::1]",
            RedisSettings(hosts=(("a", 6379), ("b", 7001), ("::1", 6379)), cluster=True),
        ),
        ("valkey+cluster://a/0", RedisSettings(hosts=(("a", 6379),), cluster=True)),
        ("rediss+cluster://a", RedisSettings(hosts=(("a", 6379),), cluster=True, tls=True)),
        ("valkeys+cluster://a", RedisSettings(hosts=(("a", 6379),), cluster=True, tls=True)),
        ("redis+unix:///run/a%20b.sock", RedisSettings(hosts=(), path="/run/a b.sock")),
        ("valkey+unix:///run/a@b.sock", RedisSettings(hosts=(), path="/run/a@b.sock")),
        ("unix://me:pw@/run/a.sock", RedisSettings(hosts=(), path="/run/a.sock", username="me", password="pw")),
        ("redis://me:pw@a", RedisSettings(hosts=(("a", 6379),), username="me", password="pw")),
        ("redis://:pw@a/1", RedisSettings(hosts=(("a", 6379),), password="pw", database=1)),
        ("redis://me@a", RedisSettings(hosts=(("a", 6379),), username="me")),
        ("redis://m%3Ae:p%40%2F%3F%25w@a", RedisSettings(hosts=(("a", 6379),), username="m:e", password="p@/?%w")),
        ("redis://:p/w@x@a", RedisSettings(hosts=(("a", 6379),), password="p/w@x")),
        (
            "redis://?prefix=shop.eu_1-a&pool=9&pool_timeout=1.5&timeout=0.25",
            RedisSettings(prefix="shop.eu_1-a", pool=9, pool_timeout_s=1.5, timeout_s=0.25),
        ),
    ],
)
def test_what_a_url_says(url: str, expected: RedisSettings) -> None:
    assert settings(url) == expected


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis:localhost", "The redis URL has no // after its scheme; a redis URL looks like redis://"),
        ("redis://a:port", "The host and port of the redis URL cannot be read"),
        ("redis://::1:6379", "an IPv6 address stands in brackets"),
        ("redis://a b", "cannot be read"),
        (f"redis://{'a' * 64}.org", "cannot be read"),
        ("redis://a:0", "The port of the redis URL must be 1 to 65535."),
        ("redis://a:65536", "The port of the redis URL must be 1 to 65535."),
        ("redis://a/one", "The database of the redis URL must be a whole number from 0 on"),
        ("redis://a/1/2", "The database of the redis URL must be a whole number from 0 on"),
        ("redis://a,b", "Several hosts are a Redis Cluster; use a redis+cluster: URL"),
        ("redis+cluster://a/1", "A Redis Cluster has only database 0; leave the number out"),
        ("redis+unix://", "A redis+unix URL needs the path of a socket"),
        ("unix://run/a.sock", "A unix URL needs the path of a socket"),
        ("redis://a?color=red", "The redis broker has no option 'color'; it knows prefix, pool"),
        ("redis://a?prefix=", "prefix must be 1 to 80 letters, digits, '_', '-' or '.', not ''."),
        ("redis://a?prefix={x}", "prefix must be 1 to 80 letters, digits, '_', '-' or '.', not '{x}'."),
        ("redis://a?prefix=a:b", "prefix must be 1 to 80"),
        ("redis://a?pool=0", "pool must be 1 to 1000 connections, not 0."),
        ("redis://a?pool=many", "pool must be 1 to 1000 connections, not 'many'."),
        ("redis://a?timeout=soon", "timeout must be seconds, not 'soon'."),
        ("redis://a?timeout=0", "timeout must be more than 0 and up to 3600 seconds, not '0'."),
        ("redis://a?timeout=nan", "timeout must be more than 0"),
        ("redis://a?pool_timeout=inf", "pool_timeout must be more than 0"),
        ("redis://a?verify=no", "verify is for TLS; use a rediss: URL with it."),
        ("rediss://a?verify=maybe", "verify must be yes or no, not 'maybe'."),
        ("rediss://a?ca=/no/such.pem", "ca must be the path of a file that exists, not '/no/such.pem'."),
        (f"rediss://a?key={__file__}", "key is the key of a certificate; set cert=… too."),
    ],
)
def test_a_url_that_is_wrong_is_answered_in_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(url)
    assert sentence in str(caught.value)


def test_user_and_password_come_from_the_environment_when_the_url_has_none() -> None:
    environ = {"LANEWAY_REDIS_USERNAME": "env", "LANEWAY_REDIS_PASSWORD": "p@w"}

    def found(url: str) -> tuple[str | None, str | None]:
        it = settings(url, **environ)
        return it.username, it.password

    assert found("redis://a") == ("env", "p@w")
    assert found("redis://me@a") == ("me", "p@w")
    assert found("redis+unix:///run/a.sock") == ("env", "p@w")
    assert found("redis://me:mine@a") == ("me", "mine")
    assert found("redis://:mine@a") == (None, "mine")  # a user of the environment has another password


def test_database_user_and_password_are_used(tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()["valkey"], tmp_path, "--requirepass", "p@/?w")
    try:
        open_url(f"redis://:p%40%2F%3Fw@127.0.0.1:{own.port}/2").do("ACL", "SETUSER", "me", "on", ">1", "~*", "+@all")
        server = open_url(f"redis://me:1@127.0.0.1:{own.port}/2")
        assert b" db=2 " in server.do("CLIENT", "INFO")
        assert server.do("ACL", "WHOAMI") == b"me"
    finally:
        own.end()


SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+unix", "unix")
SCHEMES += ("valkey", "valkeys", "valkey+cluster", "valkeys+cluster", "valkey+unix")


def test_without_redis_py_it_is_said_what_to_install() -> None:
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from laneway.urls import open_broker\n"
        "from laneway.errors import ConfigError\n"
        "for scheme in sys.argv[1:]:\n"
        "    try: open_broker(scheme + '://:pw@a')\n"
        "    except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *SCHEMES], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{scheme}: URLs need redis-py; pip install 'laneway[redis]'." for scheme in SCHEMES
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_making_a_broker_touches_nothing(scheme: str) -> None:
    where = "/no/such.sock" if "unix" in scheme else "no-such-host.invalid"
    broker = open_broker(f"{scheme}://:canary@{where}?prefix=shop")
    assert isinstance(broker, RedisBroker)
    assert "canary" not in repr(broker)
    broker.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://a?color=red", "The redis broker has no option 'color'"),
        ("redis://a:65536", "The port of the redis URL must be 1 to 65535."),
        ("redis://a/one", "The database of the redis URL must be a whole number"),
        ("redis://a?pool=0", "pool must be 1 to 1000 connections"),
        ("redis://a?prefix=a&prefix=b", "The redis URL has the option prefix more than once; leave one."),
        ("rediss://a?ca=/no/such.pem", "ca must be the path of a file that exists"),
        (f"rediss://a?ca={__file__}", "ca must be a file of certificates (PEM)"),
        ("sqlite:///a.db?color=red", "The sqlite broker has no option 'color'"),
        ("sqlite:///a.db?timeout=1&timeout=2", "The sqlite URL has the option timeout more than once"),
        ("memory:x", "A memory URL is just memory:"),
        ("sqlite", "'sqlite' is not a broker URL"),
        ("rabbit://a", "No broker for 'rabbit' URLs is installed"),
        ("127.0.0.1:6379", "'127.0.0.1:6379' is a host and a port, and no broker URL; give redis://127.0.0.1:6379 for"),
        ("localhost:6379/1", "give redis://localhost:6379/1 for Redis or Valkey, or one such as sqlite:///laneway.db."),
        ("redis:6379", "give redis://redis:6379 for"),
    ],
)
def test_an_app_is_not_made_with_a_wrong_url(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Laneway(url)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://no-such-host.invalid", "rediss://no-such-host.invalid", "sqlite:///no/such.db"]
)
def test_an_app_is_made_without_opening_anything(url: str) -> None:
    program = (
        "import sys; sys.modules['redis'] = None\n"  # nor does whoever only declares tasks need redis-py
        "from laneway import Laneway; app = Laneway(sys.argv[1]); app.close()\n"
        "assert not [name for name in sys.modules if name.startswith('redis.')]\n"
    )
    subprocess.run([sys.executable, "-c", program, url], check=True)


def test_a_secret_is_not_repeated_for_an_option_that_stands_twice() -> None:
    with pytest.raises(ConfigError) as caught:
        Laneway("redis://:x?canary=1&canary=2@host")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (redis.asyncio.Redis(), "not an asyncio Redis; that belongs to an event loop"),
        (redis.asyncio.RedisCluster(host="a"), "not an asyncio RedisCluster; that"),
        ("redis://a", "not a text; give a URL to Laneway(…) as it is."),
        (redis.Redis, "not the class Redis; give a client, Redis(…)."),
        (redis.ConnectionPool(), "not redis.connection.ConnectionPool; give one of those"),
        (valkey.Valkey(), "not valkey.client.Valkey; give one of those"),
        (None, "not builtins.NoneType; give one of those"),
    ],
)
def test_what_is_no_client_is_refused_at_once(wrong: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisBroker.of(wrong)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("RedisBroker.of takes a client of redis-py's, redis.Redis(…) or redis.Redis")


def test_the_options_of_a_ready_client_are_looked_at() -> None:
    with redis.Redis() as client:
        with pytest.raises(ConfigError, match="pool must be 1 to 1000 connections, not 0"):
            RedisBroker.of(client, pool=0)
        with pytest.raises(ConfigError, match="prefix must be 1 to 80"):
            RedisBroker.of(client, prefix="{}")
        with pytest.raises(ConfigError, match=r"Redis is no broker: .* RedisBroker.of\(…\) makes a broker of a client"):
            Laneway(broker=client)  # type: ignore[arg-type]
