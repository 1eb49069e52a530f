"""`python -m tests.support.aws.fake PORT`: runs the fake as its own process until it is killed."""

from __future__ import annotations

import sys
import threading

from tests.support.aws.fake.server import FakeServer

if __name__ == "__main__":
    server = FakeServer.start(port=int(sys.argv[1]))
    print(server.endpoint, flush=True)
    threading.Event().wait()
