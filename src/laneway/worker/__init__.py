"""The worker: claims jobs, runs them and settles them.

`Worker` is imported on first use, so that an app can name a scheduler or a splitter without loading the worker's
threads and its event loop.

- `worker`: `Worker`: starts, runs and stops, as a process or in threads of another program
- `assembly`: `Assembly` builds the parts of a worker and connects them
- `fetch/`: claims jobs and settles them: a fetcher per queue, the bus, shards
- `run/`: from a claim to its settlement: decode, run, decide, report
- `lease/`: the lease that tells a live worker from a dead one
- `member`: `Member`: the worker's id, queues and shards as the broker knows them
- `queues`: chooses the queues that a worker serves
- `subscriptions`: writes the listeners' subscriptions until each exists
- `duties`: runs a broker's periodic duties, one thread each
- `outage`: reports that the broker or a queue is away, and that it is back; notices a silent broker
- `deadline`: calls the broker with a deadline
- `shutdown`: `StopState`, `--until-empty`, and the order in which the parts stop
- `signals`: signal handlers and stack dumps
- `supervisor/`: starts and watches the worker processes
- `isolation/`: runs jobs in processes of their own
- `process/`: child processes and the connections to them, for `supervisor/` and `isolation/`
- `observe/`: counters, Prometheus metrics and HTTP probes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker

__all__ = ["Worker"]


def __getattr__(name: str) -> object:
    # An app may name its scheduler or splitter, which lie here, without bringing in threads and an event loop.
    if name == "Worker":
        from .worker import Worker

        return Worker
    raise AttributeError(f"module 'laneway.worker' has no attribute {name!r}")
