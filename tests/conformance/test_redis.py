"""The Redis broker is a broker, on Valkey and on Redis."""

from __future__ import annotations

import pytest
import redis

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.server import Server
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.kit import MakeBroker
from tests.servers import RedisServer

pytestmark = pytest.mark.conformance


class TestRedisBroker(BrokerConformance):
    @pytest.fixture
    def make_broker(self, redis_server: RedisServer) -> MakeBroker:
        return lambda clock: RedisBroker(Server.of(redis.Redis(port=redis_server.port)), clock=clock)
