"""Tests of finding one payload of a key with thousands of them by its identity, in steps that block Redis briefly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis

from laneway.brokers.redis import RedisBroker, inspect
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.script import load
from laneway.jobs.merge import identity_of
from laneway.jobs.settlement import buried
from laneway.testing.conformance.fixtures import ScriptedWorker, values
from tests.support.servers import RedisServer

#: More than are looked at in one step, with what a pattern would take for something else.
BODIES = [f'"[^*?]\\ {n}"' for n in range(3_000)]


class Counting(Server):
    """A server that knows how many values each step has looked at."""

    pages: list[int]

    def exchange(self, commands: Sequence[Command], **how: Any) -> list[Any]:
        answers = super().exchange(commands, **how)
        self.pages += [
            answer[1]
            for command, answer in zip(commands, answers, strict=True)
            if command[1] in (load("search").sha, load("search").text) and not isinstance(answer, Exception)
        ]
        return answers


@pytest.fixture
def server(redis_server: RedisServer) -> Counting:
    server = Counting.of(redis.Redis(port=redis_server.port))
    assert isinstance(server, Counting)
    server.pages = []
    return server


@pytest.fixture
def broker(server: Counting) -> RedisBroker:
    broker = RedisBroker(server)
    broker.declare("q", 1)
    values(broker, "k", dict.fromkeys(BODIES))
    return broker


@pytest.mark.parametrize("place", [0, 1_500, 2_999])
def test_one_of_very_many(broker: RedisBroker, server: Counting, place: int) -> None:
    identity = identity_of(BODIES[place])
    assert broker.status("q", "k", identity) == "queued"
    assert broker.reschedule("q", "k", identity, delay_s=60)
    assert broker.status("q", "k", identity) == "delayed"
    assert broker.cancel("q", "k", identity)
    server.pages.clear()
    assert not broker.cancel("q", "k", identity)
    assert sum(server.pages) == 2_999
    assert server.pages[0] <= 2 * inspect.FEW  # a page may be a little larger
    assert max(server.pages) <= 2 * inspect.MANY
    assert broker.status("q", "k", identity) == "cancelled"
    assert broker.inspect.find("q", "k")[0].size == 2_999


def test_few_are_searched_at_once(broker: RedisBroker, server: Counting) -> None:
    values(broker, "few", {str(n): None for n in range(10)})
    assert broker.status("q", "few", identity_of("7")) == "queued"
    assert broker.cancel("q", "few", identity_of("7"))
    assert not broker.cancel("q", "few", identity_of("7"))
    assert server.pages == []


def test_large_ones_are_looked_at_a_few_at_a_time(broker: RedisBroker, server: Counting) -> None:
    values(broker, "large", {f'"{n}{"x" * 500_000}"': None for n in range(60)})
    assert broker.status("q", "large", identity_of("none")) == "gone"
    assert sum(server.pages) == 60
    assert max(server.pages[1:]) <= 2 * inspect.CHARS // 500_000


def test_in_the_morgue_and_while_it_runs(broker: RedisBroker) -> None:
    hand = ScriptedWorker(broker)
    claim = hand.claim(max_payloads=1_000)[0]
    ran, waits = claim.payloads[5].identity, identity_of(BODIES[2_500])
    assert [broker.status("q", "k", identity) for identity in (ran, waits)] == ["running", "queued"]
    assert [broker.cancel("q", "k", identity) for identity in (ran, waits)] == [False, True]
    hand.settle(buried(claim, "no"))
    assert [broker.status("q", "k", identity) for identity in (ran, waits)] == ["dead", "cancelled"]
    assert broker.status("q", "k", identity_of("none")) == "gone"


def test_one_that_is_run_while_it_is_searched_for(
    broker: RedisBroker, server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand, identity = ScriptedWorker(broker), identity_of(BODIES[0])
    search = inspect._search

    def slowly(*args: Any) -> bytes:
        found = search(*args)
        hand.claim(max_payloads=1_000)
        return found

    monkeypatch.setattr(inspect, "_search", slowly)
    assert not broker.cancel("q", "k", identity)
    monkeypatch.undo()
    assert broker.status("q", "k", identity) == "running"
