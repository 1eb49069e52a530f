"""The shop that `laneway demo` runs: tasks of every kind, written as a user would write them.

`laneway dev laneway.demo` runs it with your own database. Nothing here knows how the demo is displayed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event, Lock
from typing import Annotated, Any

from . import Batch, Context, Key, Laneway

app = Laneway(name="demo")


class CardDeclined(Exception):
    """The bank said no."""


@app.task(context=True)
def checkout(context: Context, order: int, card: str) -> None:
    """What it enqueues and publishes is sent if and only if it succeeds."""
    context.publish("order_placed", {"order": order, "articles": _articles(order)})
    context.enqueue(charge, order, card)
    for picture in range(3):
        context.enqueue(thumbnail, f"order-{order}-{picture}.png", width=200)
    context.enqueue(Receipt(order, to="customer@example.org"))


@app.task(queue="images")
def thumbnail(picture: str, width: int) -> None:
    """Fast, and there are many."""
    time.sleep(0.002)


@app.task(context=True, max_retry_count=2, retry_in=lambda retry: 0.5 * (retry + 1))
def charge(context: Context, order: int, card: str) -> None:
    """A busy bank is tried again and gets it right; an expired card ends in the morgue."""
    if card == "expired":
        raise CardDeclined("the card has expired")
    if card == "busy" and context.attempt == 1:
        raise TimeoutError("the bank did not answer")


@app.task(queue="mail")
@dataclass
class Receipt:
    """A task may be a class with run()."""

    order: int
    to: str

    def run(self) -> None:
        time.sleep(0.02)


@app.task
async def exchange_rate(currency: str) -> None:
    """Async tasks share a worker with the others; while they wait, others run."""
    await asyncio.sleep(0.2)


@app.task(queue="mail")
def reminder(order: int) -> None:
    """Enqueued with a delay."""


@app.task(context=True, queue="orders", retry_in=lambda retry: 0.3)
def tell_customer(context: Context, order: Annotated[int, Key], status: str) -> None:
    """The key is the order: its calls run in order and one at a time, those of other orders meanwhile. A call that
    fails is run again before the next one of its order."""
    if status == "packed" and order % 7 == 0 and context.attempt == 1:
        raise TimeoutError("the customer's telephone is busy")
    time.sleep(0.005)
    with books.lock:
        books.told[order].append(status)


@app.collect(queue="stock", batch_size=2, grace=0.5, max_wait=1.0)
def write_stock(batch: Batch[int]) -> None:
    """What was sold of an article is gathered until nothing more comes for half a second, or for a second in all; then
    it is written once."""
    time.sleep(0.01)
    with books.lock:
        for article, orders in batch.items():
            books.sold[article] += len(orders)
            books.written += 1


@app.listener("order_placed", source="demo", destination="warehouse")
def pack(event: dict[str, Any]) -> None:
    """Every listener has its own queue, and gets every event: this one is the warehouse's."""
    time.sleep(0.002)
    with books.lock:
        books.packed[event["order"]] += 1


@app.listener("order_placed", source="demo", destination="loyalty", context=True, retry_in=lambda retry: 0.3)
def give_points(context: Context, event: dict[str, Any]) -> None:
    """This one fails now and then, and is run again, alone: the warehouse does not pack twice."""
    if event["order"] % 9 == 0 and context.attempt == 1:
        raise TimeoutError("the customer's account is busy")
    with books.lock:
        books.points[event["order"]] += len(event["articles"])


@app.task(queue="reports")
def daily_report(day: int) -> None:
    """Slow; what was enqueued behind it does not wait for it."""
    time.sleep(1.5)


@dataclass
class Books:
    """What the shop has written down; it shows that nothing overtakes and nothing is counted twice."""

    #: Of every order, the statuses that its customer was told, as they came.
    told: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: Of every article, how many were sold; and how often that was written.
    sold: Counter[str] = field(default_factory=Counter)
    written: int = 0
    #: Of every order, how often the warehouse has packed it, and what the customer was given for it.
    packed: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def in_order(self) -> bool:
        """Whether every customer was told each status once, and in order."""
        with self.lock:
            return all(told == STATUSES[: len(told)] for told in self.told.values())

    def packed_once(self) -> bool:
        """Whether no order was packed twice, and nobody was given too much."""
        with self.lock:
            right = all(points == len(_articles(order)) for order, points in self.points.items())
            return right and all(count == 1 for count in self.packed.values())


STATUSES = ["paid", "packed", "sent", "delivered"]
ARTICLES = ["apple", "bread", "cheese"]
books = Books()


def _articles(order: int) -> list[str]:
    return ARTICLES[: 1 + order % 3]


def open_shop(closing: Event, pause_s: float = 0.15) -> None:
    """Customers come, one after the other, until the shop closes."""
    for order in itertools.count(1):
        card = random.choices(["good", "busy", "expired"], weights=[8, 2, 1])[0]
        checkout.enqueue(order, card)
        reminder.using(delay=timedelta(seconds=3)).enqueue(order)
        tell_customer.enqueue_many([(order, status) for status in STATUSES])
        write_stock.enqueue_many([(article, order) for article in _articles(order)])
        if order % 5 == 1:
            exchange_rate.enqueue_many([("EUR",), ("JPY",), ("BRL",)])
        if order % 20 == 1:
            daily_report.enqueue(order // 20)
        if closing.wait(pause_s):
            return
