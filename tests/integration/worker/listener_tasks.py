"""App whose listeners run in isolated processes, which import it from here. Runs write to a journal file."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from laneway import Context, Laneway
from tests.integration.worker.isolated_tasks import note

app = Laneway("memory:", name="shop")


@dataclass
class Order:
    id: str
    cents: int


@app.listener("placed", context=True, isolation="process", filter={"country": ["DE"]})
def apart(context: Context, order: Order) -> None:
    note("apart", order, context.task, context.headers.get("country"), os.getpid())
    context.publish("shipped", order, generic=True)


@app.listener("placed", destination="mail", time_limit=timedelta(seconds=30))
def limited(order: Order) -> None:
    note("limited", order.id, os.getpid())


@app.listener("shipped")
async def shipped(order: dict[str, Any]) -> None:
    await asyncio.sleep(0)
    note("shipped", order["id"], os.getpid())


@app.listener("hung", time_limit=timedelta(seconds=0.5), max_retry_count=0)
def hung(value: Any) -> None:
    asyncio.run(asyncio.sleep(60))


@app.listener("stranger", isolation="process", max_retry_count=0)
def strict(order: Order) -> None:
    note("never")
