"""No sequence of steps tells a broker from the model.

`make test` runs a few hundred sequences, the same every time. `make chaos` runs 5,000 for each broker, and
`LANEWAY_SEQUENCES=20000 make test ARGS=tests/property` as many as you choose, new ones each time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from laneway.brokers.redis import RedisBroker, repair
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.settings import RedisSettings
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker
from laneway.clock import Clock
from laneway.urls import Url
from tests.support.aws.message_machine import MessageMachine
from tests.support.machine import MakeBroker, broker_machine
from tests.support.second_broker import SecondBroker
from tests.support.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.property

SEQUENCES = os.environ.get("LANEWAY_SEQUENCES")


def hold_against_the_model(make_broker: MakeBroker, sequences: int) -> None:
    run_machine(broker_machine(make_broker), sequences)


def run_machine(machine: type[RuleBasedStateMachine], sequences: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(SEQUENCES or sequences),
            stateful_step_count=30,
            derandomize=SEQUENCES is None,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class Wiped(SQLiteBroker):
    """One file for all sequences: making one takes as long as everything else together."""

    def on(self, clock: Clock) -> Wiped:
        with self._db.write() as tx:
            tables = tx.connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            for (table,) in tables.fetchall():
                tx.connection.execute(f"UPDATE {table} SET token = 0" if table == "meta" else f"DELETE FROM {table}")
        self._store.forget()
        self._clock = self._store.clock = self._waiting._clock = self.inspect._clock = clock
        return self

    def close(self) -> None:
        """Not between two sequences."""


@pytest.fixture
def wiped(tmp_path: Path) -> Iterator[Wiped]:
    broker = Wiped(tmp_path / "jobs.db")
    yield broker
    SQLiteBroker.close(broker)


class Kept(RedisBroker):
    """A broker whose connections stay open between two sequences, and that must be well after each."""

    def close(self) -> None:
        if sys.exc_info()[0] is None:
            assert repair.check(self._layouts) == []


@pytest.fixture
def emptied(redis_server: RedisServer) -> Iterator[MakeBroker]:
    server = Server.of(redis.Redis(port=redis_server.port))

    def on(clock: Clock) -> RedisBroker:
        server.do("FLUSHALL")
        return Kept(server, clock=clock)

    yield on
    server.close()


@pytest.fixture
def emptied_cluster(redis_cluster: RedisCluster) -> Iterator[MakeBroker]:
    cluster = RedisSettings.from_url(Url.parse(redis_cluster.url), environ={}).open()

    def on(clock: Clock) -> RedisBroker:
        for server in cluster.servers():
            server.do("FLUSHALL")
        return Kept(cluster, clock=clock)

    yield on
    cluster.close()


def test_the_second_broker_is_the_model() -> None:
    hold_against_the_model(SecondBroker, 100)


def test_the_sqlite_broker_is_the_model(wiped: Wiped) -> None:
    hold_against_the_model(wiped.on, 120)


def test_the_sqlite_broker_in_memory_is_the_model() -> None:
    hold_against_the_model(MemoryBroker, 20)


def test_the_redis_broker_is_the_model(emptied: MakeBroker) -> None:
    hold_against_the_model(emptied, 60)


def test_the_redis_broker_on_a_cluster_is_the_model(emptied_cluster: MakeBroker) -> None:
    hold_against_the_model(emptied_cluster, 30)


def test_the_aws_broker_keeps_its_promises_on_sqs() -> None:
    run_machine(MessageMachine, 60)
