"""Measures how fast events get from one publisher to two listeners, each in its own worker process.

    python bench/events.py [--events N] [--at-once N] [--fails] [broker …]

Brokers: `sqlite`, `redis` and `cluster` (both on Valkey), `sqs` (with SNS: the fake from the tests, in its own
process). Events are published one by one with `publish`, then `--at-once` events per call with `publish_many`. Each
listener records the events it handles and must handle each event exactly once. With `--fails` one listener fails on
the first attempt of each event: it runs twice per event, and the other listener still runs once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from places import BROKERS, place

from tests.support.event_delivery import hearing, wait_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("brokers", nargs="*", default=list(BROKERS), metavar="broker")
    options = parser.parse_args()
    for broker in options.brokers:
        for at_once in (1, options.at_once):
            with place(broker) as url, tempfile.TemporaryDirectory() as folder:
                measure(broker, url, Path(folder), options.events, at_once, options.fails)


def measure(broker: str, url: str, folder: Path, events: int, at_once: int, fails: bool) -> None:
    numbers = list(range(events))
    with hearing(url, folder, fails=fails) as (app, (mailer, stock)):
        began = time.perf_counter()
        for start in range(0, events, at_once):
            if at_once == 1:
                app.publish("placed", start)
            else:
                app.publish_many("placed", numbers[start : start + at_once])
        published_s = time.perf_counter() - began
        wait_for([mailer, stock], [events, 2 * events if fails else events])
        heard_s = time.perf_counter() - began
    assert mailer.lines("heard") == numbers, "exactly once"
    assert stock.lines("heard") == numbers, "exactly once"
    assert stock.lines("failed") == (numbers if fails else []), "it fails alone"
    name = f"{broker}, {'one by one' if at_once == 1 else f'{at_once} at once'}"
    runs = (3 if fails else 2) * events
    said = f"{events / published_s:9,.0f} published a second, {runs / heard_s:9,.0f} runs a second"
    print(f"  {name:<44} {said}", flush=True)


if __name__ == "__main__":
    main()
