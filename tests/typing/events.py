"""Right and wrong listeners and ways to publish, for the type checkers; see `test_checkers.py`."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from laneway import Context, EventSender, Handle, Laneway, Listener

app = Laneway("memory:", name="shop", env="test", infix="bus", development=True)


@dataclass
class Order:
    id: str


@app.listener("order_placed", source="shop")
def on_order(order: Order) -> None: ...


@app.listener(
    "order_placed",
    source="shop",
    destination="mail",
    context=True,
    name="mails",
    filter={"country": ["DE", {"prefix": "A"}]},
    max_retry_count=5,
    bury_on=[ValueError],
    time_limit=timedelta(seconds=5),
    isolation="process",
)
async def on_order_with_context(context: Context, order: dict[str, int]) -> None: ...


@app.listener("login")
def loose(value: Any) -> None: ...


def right(context: Context) -> None:
    assert_type(on_order, Listener[Order])
    assert_type(on_order_with_context, Listener[dict[str, int]])
    assert_type(on_order.load("{}"), Order)
    assert_type(on_order.queue, str)
    assert_type(app.listeners(), list[Listener[Any]])
    assert_type(app.publish("order_placed", Order("a")), str)
    assert_type(app.publish("order_placed", 5, generic=True, attributes={"a": "x", "b": 5, "c": [*"ab"]}), str)
    assert_type(app.publish_many("order_placed", [Order("a")], attributes={"a": 0.5}), list[str])
    assert_type(context.publish("order_placed", Order("a"), attributes={"a": "x"}), str)
    assert_type(context.publish_many("order_placed", [Order("a")], attributes={"a": "x"}), list[str])
    sender = app.sender("order_placed", "mail", generic=True)
    assert_type(sender, EventSender)
    assert_type(sender.send(5, attributes={"a": "x"}), Handle)
    assert_type(sender.using(delay=5, group="acme").send_many([5]), list[Handle])
    on_order(Order("a"))
    on_order_with_context(context, {"a": 5})
    loose(5)


def wrong(context: Context) -> None:
    on_order("a")  # wrong: it takes an Order  # pyright: ignore[reportArgumentType]
    on_order.enqueue(Order("a"))  # wrong: its event is published  # pyright: ignore[reportAttributeAccessIssue]
    context.enqueue(on_order, Order("a"))  # wrong: its event is published  # pyright: ignore[reportArgumentType, reportCallIssue]
    app.publish("order_placed")  # wrong: the value is missing  # pyright: ignore[reportCallIssue]
    app.publish(5, "a")  # wrong: an event has a name  # pyright: ignore[reportArgumentType]
    app.publish("order_placed", 5, source="other")  # wrong: an app is its own source  # pyright: ignore[reportCallIssue]
    app.publish("order_placed", 5, attributes={"a": None})  # wrong: no attribute  # pyright: ignore[reportArgumentType]
    context.publish("order_placed")  # wrong: the value is missing  # pyright: ignore[reportCallIssue]
    app.sender("order_placed")  # wrong: the destination is missing  # pyright: ignore[reportCallIssue]
    app.sender("order_placed", "mail").using(key="a")  # wrong: no keys here  # pyright: ignore[reportCallIssue]
    app.sender("order_placed", "mail").using(queue="a")  # wrong: it has a queue  # pyright: ignore[reportCallIssue]
    app.listener("login", queue="a")  # wrong: a listener's queue is named for it  # pyright: ignore[reportCallIssue]
    app.listener("login", filter={"a": "x"})  # wrong: conditions are a list  # pyright: ignore[reportArgumentType]


@app.listener("login")  # wrong: it takes no value  # pyright: ignore[reportArgumentType]
def listener_without_value() -> None: ...


@app.listener("login", context=True)  # wrong: with the context it takes two  # pyright: ignore[reportArgumentType]
def listener_without_context(value: Order) -> None: ...


@app.listener  # wrong: the event is missing  # pyright: ignore[reportArgumentType]
def listener_without_event(value: Order) -> None: ...
