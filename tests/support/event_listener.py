"""A worker that listens for orders and writes each to a file.

    python -m tests.support.event_listener DESTINATION FILE [--fails]

`event_delivery.py` starts it as a process. With `--fails` the listener fails the first attempt of each event and
writes the failed attempt to the file, too. LANEWAY_URL holds the URL.
"""

from __future__ import annotations

import logging
import os
import sys

from laneway import Context, Laneway, Worker

app = Laneway(name=sys.argv[1] if len(sys.argv) > 1 else "hears", development=True)


@app.listener("placed", source="shop", context=True, retry_in=lambda count: 0)
def hear(context: Context, number: int) -> None:
    if fails and context.attempt == 1:
        os.write(out, f"failed {number}\n".encode())
        raise ValueError("not the first time")
    os.write(out, f"heard {number}\n".encode())


if __name__ == "__main__":
    out = os.open(sys.argv[2], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    fails = "--fails" in sys.argv
    app.logger.setLevel(logging.CRITICAL if fails else logging.INFO)
    sys.exit(Worker(app).run())
