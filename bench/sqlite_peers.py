"""huey on SQLite. `sqlite_enqueue.py` runs it with a Python that has huey installed.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install huey

`sqlite_peers.py FILE COUNT FSYNC` enqueues no-op jobs one by one and prints seconds and CPU seconds. FSYNC is `yes` or
`no`. Without the option huey leaves it to SQLite, and most builds of SQLite sync. This script imports nothing from
Laneway.
"""

from __future__ import annotations

import importlib
import sys
import time


def main(file: str, count: str, fsync: str) -> None:
    huey = importlib.import_module("huey").SqliteHuey("peer", filename=file, results=False, fsync=fsync == "yes")

    @huey.task()  # type: ignore[untyped-decorator]  # the peer's types are not here
    def noop(number: int) -> None: ...

    noop(0)
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(int(count)):
        noop(number)
    print(time.perf_counter() - began, time.process_time() - cpu)


if __name__ == "__main__":
    main(*sys.argv[1:])
