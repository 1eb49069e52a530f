"""Pollers that die with -9 between the table and the queue.

    python -m tests.chaos.waiter URL

Each input line is a failpoint, how often the poller must reach it, and by how many seconds its clock is ahead (so
that the claims of pollers that died before are over). The program forks a process that polls and dies there, and
answers with its exit code: 0 if the failpoint was not reached so often. It forks because a new Python with boto3
takes a second to start.
"""

from __future__ import annotations

import os
import signal
import sys

from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.settings import AWSSettings
from laneway.failpoints import armed
from laneway.urls import Url
from tests.chaos.sqs_scenario import AheadClock


def main() -> None:
    url = Url.parse(sys.argv[1])
    for line in sys.stdin:
        place, count, ahead_s = line.rsplit(" ", 2)
        child = os.fork()
        if child == 0:
            poll(url, place, int(count), float(ahead_s))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def poll(url: Url, place: str, count: int, ahead_s: float) -> None:
    """Poll until nothing is left, or death."""
    left = iter(range(count - 1, -1, -1))

    def reached() -> None:
        if next(left, 1) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    armed[place] = reached
    clock = AheadClock()
    clock.advance(ahead_s)
    broker = AWSBroker(AWSSettings.from_url(url), clock=clock)
    (poller, *_) = broker.health.duties(["q"])
    while poller.round() < 60:
        pass


if __name__ == "__main__":
    main()
