"""Right and wrong calls of keyed and collecting tasks, for the type checkers; see `test_checkers.py`."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, assert_type

from laneway import Batch, Collecting, Context, Handle, Item, Key, Laneway

app = Laneway("memory:")


@dataclass
class Order:
    id: str
    version: int


@app.task(max_payloads=50)
def charge(order: Annotated[str, Key], cents: int) -> None: ...


@app.task
@dataclass
class Ship:
    order: Annotated[str, Key]

    def run(self) -> None: ...


@app.collect
def sync(batch: Batch[dict[str, int]]) -> None:
    for key, versions in batch.items():
        assert_type(key, str)
        assert_type(versions, list[dict[str, int]])
        assert_type(batch.scores(key), list[float])
    batch.fail("order-17", "no")
    batch.fail("order-17", ValueError("no"))


@app.collect(shards=24, batch_size=10, max_retry_count=5, grace=timedelta(1), max_wait=5, max_size=100, time_limit=9)
async def store(batch: Batch[Order]) -> None: ...


@app.collect(context=True, queue="mail", time_limit=5, isolation="process")
def mail(context: Context, batch: Batch[str]) -> None: ...


@app.collect(key=lambda order: order.id, score=lambda order: order.version, time_limit=5, isolation="fresh")
def own(batch: Batch[Order]) -> None: ...


@app.collect(context=True, key=lambda order: order.id, time_limit=timedelta(seconds=5), isolation="fresh")
async def own_async(context: Context, batch: Batch[Order]) -> None: ...


@app.collect
def loose(batch: Batch[Any]) -> None: ...


def right(context: Context) -> None:
    assert_type(charge.enqueue("order-17", 5), Handle)
    assert_type(charge.using(key=17).enqueue("order-17", cents=5), Handle)
    assert_type(app.using(key="order-17").enqueue(Ship("a")), Handle)
    assert_type(context.using(key="order-17").enqueue(Ship("a")), Handle)
    assert_type(charge.enqueue("order-17", 5).key, str)
    assert_type(sync, Collecting[dict[str, int]])
    assert_type(sync.enqueue("order-17", {"v": 1}), Handle)
    assert_type(sync.enqueue(17, payload={"v": 1}), Handle)
    assert_type(sync.using(score=7, delay=5).enqueue("order-17", {"v": 1}), Handle)
    assert_type(store.enqueue("order-17", Order("a", 1)), Handle)
    assert_type(mail.enqueue("a@example.org"), Handle)
    assert_type(loose.enqueue("a", [1, "x"]), Handle)
    assert_type(own.enqueue(payload=Order("a", 1)), Handle)
    assert_type(own.enqueue("b", Order("a", 1)), Handle)
    assert_type(own.using(score=1).enqueue(payload=Order("a", 1)), Handle)
    assert_type(own_async.enqueue(payload=Order("a", 1)), Handle)
    assert_type(sync.enqueue_many([("a", {"v": 1}), ("b",), Item("c", {"v": 2}, score=7)]), list[Handle])
    assert_type(context.enqueue(sync, "order-17", {"v": 1}), Handle)
    assert_type(context.enqueue(sync.using(score=7), "order-17", payload={"v": 1}), Handle)
    assert_type(context.enqueue(mail, "a@example.org"), Handle)
    assert_type(context.enqueue(own, payload=Order("a", 1)), Handle)
    assert_type(context.enqueue(own, "b", Order("a", 1)), Handle)
    assert_type(context.enqueue(charge, "order-17", 5), Handle)
    sync(Batch({"order-17": [{"v": 1}]}, {"order-17": [1.5]}))
    mail(context, Batch({"a": ["x"]}))


def wrong(context: Context) -> None:
    charge.enqueue("order-17")  # wrong: cents is missing  # pyright: ignore[reportCallIssue]
    charge.enqueue(17, 5)  # wrong: a marked parameter has its type  # pyright: ignore[reportArgumentType]
    charge.using(keys="a")  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
    sync.enqueue()  # wrong: the key is missing  # pyright: ignore[reportCallIssue]
    sync.enqueue(payload={"v": 1})  # wrong: the key is missing, and nothing computes it  # pyright: ignore[reportCallIssue]
    sync.enqueue("a", {"v": "1"})  # wrong: versions are numbers  # pyright: ignore[reportArgumentType]
    sync.enqueue("a", 5)  # wrong: a payload is a dict  # pyright: ignore[reportArgumentType]
    sync.enqueue("a", {"v": 1}, 7)  # wrong: a score goes through using  # pyright: ignore[reportCallIssue]
    sync.enqueue("a", score=7)  # wrong: a score goes through using  # pyright: ignore[reportCallIssue]
    store.enqueue("a", {"id": "a"})  # wrong: async, and as strict  # pyright: ignore[reportArgumentType]
    mail.enqueue(context, "a", "x")  # wrong: the context is handed in  # pyright: ignore[reportCallIssue]
    mail.enqueue("a", 5)  # wrong: a payload is text  # pyright: ignore[reportArgumentType]
    own.enqueue(payload="a")  # wrong: a payload is an Order  # pyright: ignore[reportArgumentType]
    own.enqueue("a")  # wrong: the payload is missing  # pyright: ignore[reportCallIssue]
    own.enqueue()  # wrong: neither key nor payload  # pyright: ignore[reportCallIssue]
    own_async.enqueue(payload=5)  # wrong: a payload is an Order  # pyright: ignore[reportArgumentType]
    sync.using(score="7")  # wrong: a score is a number  # pyright: ignore[reportArgumentType]
    sync.using(queue="other")  # wrong: its queue is its alone  # pyright: ignore[reportArgumentType]
    sync.using(key="a")  # wrong: the key is an argument  # pyright: ignore[reportArgumentType]
    sync.enqueue_many([("a", 5)])  # wrong: a payload is a dict  # pyright: ignore[reportArgumentType]
    sync.enqueue_many([["a", {"v": 1}]])  # wrong: tuples or Item  # pyright: ignore[reportArgumentType]
    sync.enqueue_many([("a", {"v": 1}, 7)])  # wrong: a score goes into an Item  # pyright: ignore[reportArgumentType]
    context.enqueue(sync)  # wrong: the key is missing  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.enqueue(sync, payload={"v": 1})  # wrong: nothing computes the key  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.enqueue(sync, "a", 5)  # wrong: a payload is a dict  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.enqueue(own, payload=5)  # wrong: a payload is an Order  # pyright: ignore[reportArgumentType, reportCallIssue]
    sync({"order-17": [{"v": 1}]})  # wrong: a plain call gives a batch  # pyright: ignore[reportArgumentType]
    sync(Batch({"order-17": ["x"]}))  # wrong: a payload is a dict  # pyright: ignore[reportArgumentType]
    Batch({"a": 5})  # wrong: payloads are a list  # pyright: ignore[reportArgumentType]


@app.collect  # wrong: it takes no batch  # pyright: ignore[reportArgumentType]
def no_batch() -> None: ...


@app.collect  # wrong: a batch, not a number  # pyright: ignore[reportArgumentType]
def a_number(batch: int) -> None: ...


@app.collect(shards=2)  # wrong: it takes no batch  # pyright: ignore[reportArgumentType]
def no_batch_either() -> None: ...


@app.collect(context=True)  # wrong: with the context, and as strict  # pyright: ignore[reportArgumentType]
def no_context(batch: Batch[str]) -> None: ...


@app.collect(shard=2)  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
def misspelt(batch: Batch[str]) -> None: ...
