"""Temporary private brokers for benchmarks: a SQLite file, a Valkey server, a Valkey Cluster or fake SQS.

`place` yields the URL and removes the broker afterwards. The Cluster has three servers. SQS is the fake from the
tests in its own process, so no broker needs an AWS account.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the servers that tests start

from tests.support.aws.servers import ENVIRONMENT, FakeProcess
from tests.support.servers import RedisCluster, RedisServer, servers

BROKERS = ("sqlite", "redis", "cluster", "sqs")


@contextmanager
def place(broker: str, *queues: str) -> Iterator[str]:
    """A fresh one of this kind, its URL; where queues have to be made, these are there."""
    with tempfile.TemporaryDirectory() as folder:
        if broker == "sqlite":
            yield f"sqlite:///{Path(folder, 'bench.db')}"
            return
        server: RedisServer | RedisCluster | FakeProcess
        if broker == "sqs":
            os.environ.update(ENVIRONMENT)
            server = FakeProcess.start()
            url = server.url()
            for queue in queues:
                server.create_queues(queue, MessageRetentionPeriod=1_209_600)
        else:
            kind = RedisServer if broker == "redis" else RedisCluster
            # Nothing on disk: else the disk is what is measured.
            server = kind.start(servers()["valkey"], Path(folder), "--appendonly", "no")
            url = server.url
        try:
            yield url
        finally:
            server.end()
