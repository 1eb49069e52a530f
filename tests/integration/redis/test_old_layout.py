"""What an earlier version has stored is refused in a sentence, and left as it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
import redis

from laneway import Laneway
from laneway.errors import BrokerRefusedError
from tests.support.servers import RedisServer


@pytest.mark.parametrize(
    "use",
    [
        lambda app, task: task.enqueue(1),
        lambda app, task: app.broker.declare("default", 5),
        lambda app, task: app.broker.inspect.stats(),
        lambda app, task: app.broker.health.check(),
    ],
    ids=["enqueue", "declare", "stats", "check"],
)
def test_an_earlier_layout_is_refused(redis_server: RedisServer, use: Callable[..., object]) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.hset("{old}:queues", "default", "a record of the queue")
        before = sorted(client.keys("{old*"))
        app = Laneway(f"{redis_server.url}?prefix=old", name="shop")
        with closing(app):

            @app.task
            def add(number: int) -> None: ...

            with pytest.raises(BrokerRefusedError, match=r"an earlier version .* give a prefix=… of its own"):
                use(app, add)
        assert sorted(client.keys("{old*")) == before
