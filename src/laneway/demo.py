"""A small shop, to see Laneway at work: `laneway demo`, or `laneway dev laneway.demo` with a database of your own.

Every kind of task that there is, written as one would write it. Nothing here knows how it is shown.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass
from datetime import timedelta
from threading import Event

from . import Context, Laneway

app = Laneway(name="demo")


class CardDeclined(Exception):
    """The bank said no."""


@app.task(context=True)
def checkout(context: Context, order: int, card: str) -> None:
    """What it enqueues is sent if and only if it succeeds."""
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


@app.task(queue="reports")
def daily_report(day: int) -> None:
    """Slow; what was enqueued behind it does not wait for it."""
    time.sleep(1.5)


def open_shop(closing: Event, pause_s: float = 0.15) -> None:
    """Customers come, one after the other, until the shop closes."""
    for order in itertools.count(1):
        card = random.choices(["good", "busy", "expired"], weights=[8, 2, 1])[0]
        checkout.enqueue(order, card)
        reminder.using(delay=timedelta(seconds=3)).enqueue(order)
        if order % 5 == 1:
            exchange_rate.enqueue_many([("EUR",), ("JPY",), ("BRL",)])
        if order % 20 == 1:
            daily_report.enqueue(order // 20)
        if closing.wait(pause_s):
            return
