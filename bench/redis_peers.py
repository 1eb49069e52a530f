"""Other Python job systems on the same Redis; other benchmarks run it with a Python that has them installed.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install huey taskiq taskiq-redis 'dramatiq[redis]' rq arq hiredis

`enqueue NAME URL COUNT` sends no-op jobs one by one and prints seconds and CPU seconds. `send NAME URL` sends a job
with the current time for each line of its input. `work NAME URL FILE` runs these jobs and appends to the file how
long each took to start. This script imports nothing from Laneway.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Send = Callable[[float], object]


def mark(sent: float) -> None:
    if out := os.environ.get("MARKS"):
        descriptor = os.open(out, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, f"{time.time() - sent}\n".encode())
        os.close(descriptor)


def huey_task(url: str) -> tuple[Any, Any]:
    huey = importlib.import_module("huey").RedisHuey("peer", url=url, results=False)
    return huey, huey.task(name="mark")(mark)


def taskiq_task(url: str) -> tuple[Any, Any]:
    async def mark_async(sent: float) -> None:
        mark(sent)

    broker = importlib.import_module("taskiq_redis").ListQueueBroker(url)
    return broker, broker.register_task(mark_async, task_name="mark")


def huey_sender(url: str) -> Send:
    return huey_task(url)[1]  # type: ignore[no-any-return]  # the peers' types are not here


def dramatiq_sender(url: str) -> Send:
    dramatiq = importlib.import_module("dramatiq")
    broker = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=url)
    dramatiq.set_broker(broker)
    return dramatiq.actor(mark).send  # type: ignore[no-any-return]


def rq_sender(url: str) -> Send:
    queue = importlib.import_module("rq").Queue(connection=importlib.import_module("redis").from_url(url))
    return lambda sent: queue.enqueue("redis_peers.mark", sent)


async def taskiq_sender(url: str) -> Callable[[float], Awaitable[object]]:
    broker, task = taskiq_task(url)
    await broker.startup()
    return task.kiq  # type: ignore[no-any-return]


async def arq_sender(url: str) -> Callable[[float], Awaitable[object]]:
    arq = importlib.import_module("arq")
    settings = importlib.import_module("arq.connections").RedisSettings.from_dsn(url)
    pool = await arq.create_pool(settings)
    return lambda sent: pool.enqueue_job("mark", sent)


SYNC = {"huey": huey_sender, "dramatiq": dramatiq_sender, "rq": rq_sender}
ASYNC = {"taskiq": taskiq_sender, "arq": arq_sender}


def enqueue(name: str, url: str, count: int) -> None:
    if name in SYNC:
        send = SYNC[name](url)
        send(0.0)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            send(0.0)
        print(time.perf_counter() - began, time.process_time() - cpu)
    else:
        asyncio.run(enqueue_async(name, url, count))


async def enqueue_async(name: str, url: str, count: int) -> None:
    send = await ASYNC[name](url)
    await send(0.0)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await send(0.0)
    print(time.perf_counter() - began, time.process_time() - cpu)


def send(name: str, url: str) -> None:
    """A job for each line of input; answers a line when it is sent."""
    if name in SYNC:
        send = SYNC[name](url)
        for _ in sys.stdin:
            send(time.time())
            print(flush=True)
        return

    async def answer() -> None:
        send = await ASYNC[name](url)
        while await asyncio.to_thread(sys.stdin.readline):
            await send(time.time())
            print(flush=True)

    asyncio.run(answer())


def work(name: str, url: str, marks: str) -> None:
    os.environ |= {"MARKS": marks, "PEER_URL": url}
    if name == "huey":
        huey_task(url)[0].create_consumer(workers=5).run()
    else:
        folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # the peers' Python may be any
        command = ["-m", "taskiq", "worker", "redis_peers:worker_broker", "--workers", "1", "--app-dir", folder]
        os.execv(sys.executable, [sys.executable, *command])


def __getattr__(name: str) -> Any:
    """What taskiq's command line looks for in this module."""
    if name == "worker_broker":
        return taskiq_task(os.environ["PEER_URL"])[0]
    raise AttributeError(name)


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    if verb == "enqueue":
        enqueue(arguments[0], arguments[1], int(arguments[2]))
    else:
        {"send": send, "work": work}[verb](*arguments)
