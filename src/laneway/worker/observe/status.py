"""Serves a supervisor's state over HTTP: `/live`, `/ready` and `/metrics`.

`prometheus` is imported only if metrics are wanted, because the package may not be installed. This file is apart from
`http`, because `prometheus` imports `http`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ...config import StatusPorts
from ..supervisor.supervisor import Supervisor
from .counters import CounterTotal, RunCounters, Snapshot
from .http import Reply, StatusServer, health_routes


@contextmanager
def shown(supervisor: Supervisor, ports: StatusPorts) -> Iterator[None]:
    """Serve what is asked for meanwhile; raises ConfigError before anything runs if that cannot be."""
    routes: dict[int, dict[str, Callable[[], Reply]]] = {}
    with ExitStack() as stack:
        if ports.health is not None:
            routes.setdefault(ports.health, {}).update(health_routes(supervisor.not_live, supervisor.not_ready))
        if ports.metrics is not None:
            from .prometheus import metrics_routes  # others need not have it installed

            counted = _counted(supervisor, stack)
            routes.setdefault(ports.metrics, {}).update(metrics_routes(counted, supervisor.app.broker))
        for port, found in routes.items():
            server = StatusServer(port, found, host=ports.host)
            server.start()
            stack.callback(server.stop)
            supervisor.app.logger.info("serving %s on %s:%d", " and ".join(sorted(found)), server.host, server.port)
        yield


def _counted(supervisor: Supervisor, stack: ExitStack) -> Callable[[], Snapshot]:
    """What the supervisor and all its children have counted, also those that have ended."""
    total = supervisor.total = CounterTotal()
    own = RunCounters(supervisor.app.telemetry)
    own.start()
    stack.callback(own.stop)

    def snapshot() -> Snapshot:
        total.update(supervisor, own.snapshot())
        return total.snapshot()

    return snapshot
