"""Orders: a shop whose jobs have keys, with a keyed and a collecting task and a gate that holds a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from laneway import Laneway
from laneway.jobs.data import JobView
from tests.support.shop import CANARY, Shop

#: `tell` and `gather` fail for what is called "bad", and at the gate a run stands still until it is opened.
ORDERS = """
from pathlib import Path
from typing import Annotated

from laneway import Batch, Key, Laneway

app = Laneway(name="orders")

def run(what: str) -> None:
    if "bad" in what:
        raise OSError("the printer is on fire")
    if "gate" in what:
        Path("gate").read_text()
    with open("ran.log", "a") as log:
        log.write(what + "\\n")

@app.task(queue="orders", max_retry_count=3, retry_in=lambda retry: 9_000)
def tell(order: Annotated[str, Key], status: str) -> None:
    run(f"{order} {status}")

@app.collect(queue="stock", shards=4, max_retry_count=3, retry_in=lambda retry: 9_000)
def gather(batch: Batch[str]) -> None:
    for key, payloads in batch.items():
        for payload in payloads:
            run(f"{key} {payload}")
"""


class Orders(Shop):
    """A folder with that app in it as `orders`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write("orders.py", ORDERS)

    def app(self) -> Laneway:
        app = Laneway(f"sqlite:///{self.database}", name="orders")
        exec(ORDERS.replace('app = Laneway(name="orders")', ""), {"app": app})
        return app

    def tell(self, order: str, *statuses: str, **options: Any) -> list[str]:
        """Enqueue calls of the keyed task, and return their ids."""
        with closing(self.app()) as app:
            task = app.registry.find("tell")
            assert task is not None
            calls = [(order, f"{status} {CANARY}") for status in statuses]
            return [handle.id for handle in task.using(**options).enqueue_many(calls)]

    def gather(self, *keys: str, payloads: int = 1, what: str = "sold", **options: Any) -> None:
        """Enqueue payloads of the collecting task, so many for each key."""
        with closing(self.app()) as app:
            task = app.registry.collector_of("stock")
            assert task is not None
            items = [(key, f"{what} {number} {CANARY}") for key in keys for number in range(payloads)]
            task.using(**options).enqueue_many(items)

    def work(self) -> None:
        """Run what is due, until nothing is."""
        self.ok("worker", "orders", "--until-empty")

    def find(self, queue: str, key: str) -> dict[str, JobView]:
        """A key's jobs by their status."""
        with closing(self.app()) as app:
            return {view.status: view for view in app.broker.inspect.find(queue, key)}

    def ran(self) -> list[str]:
        """What was run, as far as it succeeded, without the canary."""
        log = self.folder / "ran.log"
        return [line.replace(f" {CANARY}", "") for line in log.read_text().splitlines()] if log.exists() else []

    def make_gate(self) -> Path:
        """A pipe: who reads it stands still until somebody has opened and closed it for writing."""
        gate = self.folder / "gate"
        os.mkfifo(gate)
        return gate

    @contextmanager
    def held(self) -> Iterator[None]:
        """With a worker standing at the gate in the run of the job `gate`; it goes on and stops afterwards."""
        gate = self.make_gate()
        worker = self.start("worker", "orders")
        try:
            with gate.open("w"):  # which waits until the run reads
                yield
        finally:
            worker.terminate()
            worker.communicate(timeout=30)
        assert worker.returncode == 0
