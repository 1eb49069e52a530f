"""Measures publishing to 1, 2 and 10 queues on one Redis, compared with enqueueing as many jobs.

    python bench/redis_publish.py [--events N] [--many N] [--rounds N] [--server NAME]

Publishes an event to a number of queues, then enqueues as many jobs with one `enqueue_many`, in alternation. The
best of several rounds counts. Publishing reads the subscriptions first, which is one more round trip. Then many
events at once are compared with all their jobs at once.
"""

from __future__ import annotations

import argparse

from redis_measuring import Meter, line, parser_of, started

from laneway import Laneway
from laneway.events.event import Subscription
from tests.support.servers import RedisServer

QUEUES = (1, 2, 10)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--events", type=int, default=1_500, help="one by one, in each round")
    parser.add_argument("--many", type=int, default=10_000, help="at once")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for server in started(options.server):
        for queues in QUEUES:
            measure(server, queues, options)


def measure(server: RedisServer, queues: int, options: argparse.Namespace) -> None:
    app = Laneway(server.url, name="shop")
    names = [app.names.queue(f"app{n}", "sold", "shop") for n in range(queues)]

    @app.task
    def noop(number: int) -> None: ...

    best: dict[str, tuple[float, str]] = {}

    def note(name: str, meter: Meter, count: int) -> None:
        best[name] = max(best.get(name, (0.0, "")), (meter.rate(count), meter.said(count)))

    count, many = options.events, options.many
    publish, enqueue = f"publish to {queues}", f"enqueue {queues}"
    for _ in range(options.rounds):
        server.flush()
        app.use(server.url)
        for name in names:
            app.broker.events.subscribe(Subscription(app.names.topic("sold", "shop"), name))
        app.publish("sold", {"number": 0})
        noop.enqueue(0)
        with Meter(server) as meter:
            for number in range(count):
                app.publish("sold", {"number": number})
        note(publish, meter, count)
        with Meter(server) as meter:
            for number in range(count):
                noop.enqueue_many([(number,)] * queues)
        note(enqueue, meter, count)
        with Meter(server) as meter:
            app.publish_many("sold", [{"number": number} for number in range(many)])
        note(f"publish_many, {many:,} to {queues}", meter, many)
        with Meter(server) as meter:
            noop.enqueue_many([(number,) for number in range(many * queues)])
        note(f"enqueue_many, {many:,} x {queues}", meter, many)
    app.close()
    for name, (_, said) in best.items():
        line(name, said)


if __name__ == "__main__":
    main()
