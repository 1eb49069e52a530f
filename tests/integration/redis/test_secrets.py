"""Tests that the password of a URL appears in no error, no repr and no log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from laneway.brokers.redis.client.server import RedisClient
from laneway.brokers.redis.repair import problems
from laneway.brokers.redis.script import Script
from laneway.brokers.redis.settings import RedisSettings
from laneway.errors import BrokerAwayError, BrokerError, ConfigError, LanewayError
from laneway.urls import Url
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer, servers

pytestmark = pytest.mark.integration

CANARY = "canary"


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:canary@host:port",
        "redis://me:canary",
        "redis://canary:@a b",
        "redis://:canary?canary@host",
        "redis://:x?canary=1@host",
        "redis://:x@a?canary@host",
        "redis://:x@a?pool=canary@host",
        "redis://:canary%@host",
        "redis://:canary@host/canary",
        "redis://:can#canary@a,b",
        "redis://:12345?canary@host",
        "redis:canary@host",
        "redis+cluster://:canary@host/1",
        "redis+unix://:canary@host",
        "redis://:canary@host?pool=0",
        "rediss://:canary@host?ca=/no",
    ],
)
def test_urls_that_are_wrong(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisSettings.from_url(Url.parse(url), {"LANEWAY_REDIS_PASSWORD": CANARY})
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert CANARY not in str(caught.value)


def test_what_is_printed_for_a_developer() -> None:
    url = Url.parse("redis+cluster://canary:canary@a,b?prefix=x")
    it = RedisSettings.from_url(url, {})
    assert it.password == CANARY
    opened = it.open()
    single = RedisSettings.from_url(Url.parse("redis://canary:canary@a"), {}).open()
    for thing in (url, it, opened, single, opened.place, single.place, vars(single)["connections"].address):
        assert CANARY not in repr(thing)
        assert CANARY not in str(thing)


def test_servers_that_refuse(
    tmp_path: Path, open_url: Opener, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    own = RedisServer.start(servers()["valkey"], tmp_path, "--requirepass", "right")
    said: list[str] = []

    def refused(kind: type[LanewayError], call: Callable[[], object], sentence: str) -> None:
        with pytest.raises(kind) as caught:
            call()
        assert sentence in str(caught.value)
        said.append("".join(traceback.format_exception(caught.value)))

    def both(kind: type[LanewayError], caller: RedisClient, sentence: str) -> None:
        refused(kind, lambda: caller.do("GET", "k"), sentence)
        refused(kind, lambda: caller.run(Script("x", "return 1"), ["k"], []), sentence)
        refused(kind, lambda: caller.wait(["k"], 0.1), sentence)
        refused(kind, lambda: problems(caller), sentence)

    try:
        at = f"127.0.0.1:{own.port}"
        letting_in = "did not let Laneway in; set the right user and password in the URL"
        both(BrokerError, open_url(f"redis://:canary@{at}"), letting_in)
        both(BrokerError, open_url(f"redis://canary:canary@{at}"), letting_in)
        both(BrokerError, open_url(f"redis://{at}"), letting_in)
        both(BrokerError, open_url(f"redis+cluster://:canary@{at}"), letting_in)
        admin = open_url(f"redis://:right@{at}")
        admin.do("ACL", "SETUSER", "canary-less", "on", f">{CANARY}", "~mine:*", "+@connection")
        refused(
            BrokerError, lambda: open_url(f"redis://canary-less:{CANARY}@{at}").do("GET", "k"), "the command get (+get)"
        )
        admin.do("CONFIG", "SET", "requirepass", "")
        # A password that nobody asked for: Redis lets everybody in, and says that something is wrong.
        both(BrokerError, open_url(f"redis://:canary@{at}/99"), "")
        own.kill()
        both(BrokerAwayError, open_url(f"redis://:canary@{at}"), "is away")
        both(BrokerAwayError, open_url(f"redis+cluster://:canary@{at}"), "is away")
        both(BrokerAwayError, open_url(f"rediss://:canary@{at}"), "is away")
        both(BrokerAwayError, open_url(f"redis+unix://:canary@{tmp_path}/none.sock"), "is away")
    finally:
        own.end()
    # A traceback shows the lines of this file too.
    lines = [line for text in said for line in text.splitlines() if "open_url(" not in line]
    everything = "\n".join([*lines, caplog.text, *capfd.readouterr()]).replace("canary-less", "")
    assert "is away" in everything
    assert CANARY not in everything
