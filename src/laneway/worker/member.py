"""`Member`: a worker as the broker knows it: its id, its queues and the shards that it serves.

A worker joins when it starts and leaves when it ends. If its lease is lost, it joins again under a new id and drops
everything that it claimed under the old id. `lease/lease.py` renews the lease.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..clock import Clock
from ..config import WorkerOptions
from ..ids import new_id
from ..jobs.data import StartedRun, WorkerView
from ..telemetry import LeaseEnded
from .deadline import call_with_deadline

if TYPE_CHECKING:
    from ..app import Laneway
    from ..broker import Broker
    from .fetch.shards import ShardAssignment
    from .outage import Outage

#: How long the broker may take to list its workers. Meanwhile the caller may run jobs that another worker runs, too.
KNOWN_S = 0.5


def is_forgotten(broker: Broker, lost: str) -> bool:
    """Whether the broker does not know the worker that it refuses. It remembers dead workers for an hour."""
    try:
        known = call_with_deadline(broker.inspect.workers, timeout_s=KNOWN_S)
    except Exception:
        return False  # the usual case
    return all(view.id != lost for view in known)


class Member:
    """One worker's registration with the broker."""

    def __init__(
        self, app: Laneway, options: WorkerOptions, clock: Clock, shares: dict[str, ShardAssignment], outage: Outage
    ) -> None:
        self._app = app
        self._options = options
        self._clock = clock
        self._shares = shares
        self._outage = outage
        self._lock = threading.Lock()
        self._view: WorkerView | None = None
        #: Queues for which a warning was logged that need not be repeated.
        self._warned: set[str] = set()
        self.id = ""
        #: The id whose claims are ours; empty from when the lease is known to be lost until there is a new id.
        self.held_under = ""
        #: Drops everything that was claimed under a lost id; set by the worker.
        self.forget: Callable[[], None] = lambda: None
        #: Called when there is a new lease, with the time at which it was asked for; set by the worker.
        self.joined: Callable[[float], None] = lambda began: None

    def join(self) -> None:
        """Join the broker under a new, unique id."""
        # Declare also collecting queues that it does not serve: a run may enqueue to them, and they must exist with the
        # declared shards by then.
        collecting = [name for name in self._app.queues() if self._app.registry.collector_of(name)]
        for name in dict.fromkeys([*self._shares, *collecting]):
            self._declare(name)
        now, began = self._clock.now(), self._clock.monotonic()
        view = WorkerView(
            id=new_id(),
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=list(self._shares),
            concurrency=self._options.concurrency,
            lease_s=self._options.lease_s,
            started_at=now,
            seen_at=now,
            shards=self._served(),
        )
        self._app.broker.join(view)
        self._view = view
        self.id = self.held_under = view.id
        self.joined(began)

    def rejoin(self, lost: str) -> None:
        """Continue under a new id after the lease was lost. Waiting claims belong to other workers now."""
        with self._lock:
            if self.id != lost:
                return  # another thread has handled it already
            # From here on no job that was claimed under the old id is started.
            self.held_under = ""
            # Before there is a new id: jobs that are claimed under the new id must not be dropped.
            self.forget()
            try:
                self.join()
            except Exception as error:
                # The caller still has the old id, so it will call this again.
                self._outage.away("worker", error)
                return
            self._outage.back("worker")
            self._app.telemetry.emit(LeaseEnded(lost, is_forgotten(self._app.broker, lost)))

    def report_shards(self) -> None:
        """Tell the broker that this process serves other shards now, for operators who look."""
        with self._lock:
            assert self._view is not None, "a fetcher has taken a turn, so the worker has joined"
            view = msgspec.structs.replace(self._view, shards=self._served())
            try:
                self._app.broker.join(view)
            except Exception as error:
                self._app.logger.warning("could not tell the broker which shards are served now (%s)", error)
            else:
                self._view = view

    def leave(self, died: Sequence[StartedRun], timeout_s: float, otherwise: str) -> None:
        """Leave the broker, which gives back the claims that are still held. The runs in `died` count a death.

        `otherwise` says what happens if the broker does not answer in time.
        """
        try:
            call_with_deadline(
                lambda: self._app.broker.leave(self.id, died),
                timeout_s=timeout_s,
                say=lambda: self._app.logger.info("still waiting for the broker, to say goodbye"),
            )
        except Exception as error:
            self._app.logger.warning("could not say goodbye to the broker: %s %s", error, otherwise)

    def _served(self) -> dict[str, list[int]]:
        return {name: share.served for name, share in self._shares.items() if share.served is not None}

    def _declare(self, queue: str) -> None:
        """Make the queue if it does not exist. The broker says how many shards it has."""
        wanted = self._app.shards_of(queue)
        stored = self._app.broker.declare(queue, wanted)
        share = self._shares.get(queue)
        if share is not None:
            share.declared(stored)
        if queue in self._warned:
            return
        if share is not None and share.served == []:
            self._warned.add(queue)
            self._app.logger.warning(
                "none of the %d shards of the queue %s is this process's to serve; look at its splitter, or at "
                "LANEWAY_NODES and LANEWAY_NODE",
                stored,
                queue,
            )
        if stored != wanted and self._app.registry.collector_of(queue):
            self._warned.add(queue)
            self._app.logger.warning(
                "the queue %s has %d shards, and the code says shards=%d; what is stored counts: change it with "
                "`laneway reshard %s %d`, or the code",
                queue,
                stored,
                wanted,
                queue,
                wanted,
            )
