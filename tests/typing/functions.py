"""Right and wrong calls of function tasks, for the type checkers; see `test_checkers.py`."""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from laneway import Call, Context, Handle, Item, Laneway

app = Laneway("memory:")


@app.task
def resize(path: str, width: int, *, sharp: bool = False) -> float:
    return width / 2


@app.task(queue="mail", max_retry_count=3, aliases=["post"], bury_on=[ValueError])
def send(to: str) -> None: ...


@app.task(time_limit=30, isolation="fresh")
def convert(path: str) -> None: ...


@app.task(context=True, time_limit=timedelta(minutes=1), isolation="process")
async def crawl(context: Context, url: str) -> None: ...


@app.task
async def fetch(url: str) -> bytes:
    return url.encode()


@app.task(context=True)
def tidy(context: Context, path: str) -> int:
    return context.attempt


@app.task(context=True, queue="slow")
async def sweep(context: Context, path: str, depth: int = 1) -> int:
    return context.attempt


def right(context: Context) -> None:
    assert_type(resize.enqueue("a.png", 200), Handle)
    assert_type(convert.enqueue("a.png"), Handle)
    assert_type(crawl.enqueue("https://example.org"), Handle)
    assert_type(resize.enqueue("a.png", width=200, sharp=True), Handle)
    assert_type(fetch.enqueue("https://example.org"), Handle)
    assert_type(tidy.enqueue("a.png"), Handle)
    assert_type(sweep.enqueue(path="a.png", depth=2), Handle)
    assert_type(send.enqueue("a@example.org"), Handle)
    assert_type(resize.using(delay=timedelta(days=90)).enqueue("a.png", width=200), Handle)
    assert_type(resize.using(perform_at=datetime.now(UTC), queue="x").enqueue("a.png", 1), Handle)
    assert_type(resize.using(group="tenant-7", cancellable=True).enqueue("a.png", 1), Handle)
    assert_type(resize.enqueue_many([("a.png", 200), Item("b.png", width=100, perform_at=1.5)]), list[Handle])
    assert_type(context.enqueue(resize, "a.png", width=200), Handle)
    assert_type(context.enqueue(tidy, "a.png"), Handle)
    assert_type(context.enqueue(resize.using(delay=5), "a.png", 200), Handle)
    assert_type(resize("a.png", 200), float)
    assert_type(tidy(context, "a.png"), int)
    coroutine: Coroutine[Any, Any, bytes] = fetch("https://example.org")
    coroutine.close()
    assert_type(resize.call("a.png", 200), Call)
    assert_type(tidy.call("a.png"), Call)
    assert_type(resize.enqueue("a.png", 200).cancel(), bool)


def wrong(context: Context) -> None:
    convert.enqueue(17)  # wrong: isolated, and as strict  # pyright: ignore[reportArgumentType]
    app.task(isolation="thread")  # wrong: no such isolation  # pyright: ignore[reportArgumentType]
    app.task(time_limit="5")  # wrong: seconds or a timedelta  # pyright: ignore[reportArgumentType]
    resize.enqueue("a.png")  # wrong: width is missing  # pyright: ignore[reportCallIssue]
    resize.enqueue("a.png", "200")  # wrong: width is a number  # pyright: ignore[reportArgumentType]
    resize.enqueue("a.png", 200, True)  # wrong: sharp goes by name  # pyright: ignore[reportCallIssue]
    resize.enqueue("a.png", 200, delay=5)  # wrong: options go through using  # pyright: ignore[reportCallIssue]
    resize.enqueue(path=b"a.png", width=200)  # wrong: path is text  # pyright: ignore[reportArgumentType]
    send.enqueue(17)  # wrong: declared with options, and as strict  # pyright: ignore[reportArgumentType]
    fetch.enqueue()  # wrong: async, and as strict  # pyright: ignore[reportCallIssue]
    fetch.enqueue(17)  # wrong: url is text  # pyright: ignore[reportArgumentType]
    tidy.enqueue(context, "a.png")  # wrong: the context is handed in  # pyright: ignore[reportCallIssue]
    tidy.enqueue()  # wrong: path is missing  # pyright: ignore[reportCallIssue]
    sweep.enqueue("a.png", depth="2")  # wrong: depth is a number  # pyright: ignore[reportArgumentType]
    sweep.enqueue(context, "a.png")  # wrong: the context is handed in  # pyright: ignore[reportArgumentType]
    resize.using(delays=5)  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
    resize.using(delay="5")  # wrong: seconds or a timedelta  # pyright: ignore[reportArgumentType]
    resize.using(group=5)  # wrong: a group's name is text  # pyright: ignore[reportArgumentType]
    resize.using(cancellable="yes")  # wrong: True or False  # pyright: ignore[reportArgumentType]
    resize.using(queue=5)  # wrong: a queue's name is text  # pyright: ignore[reportArgumentType]
    resize.using(delay=5).enqueue("a.png")  # wrong: as strict after using  # pyright: ignore[reportCallIssue]
    resize.enqueue_many([["a.png", 200]])  # wrong: tuples or Item  # pyright: ignore[reportArgumentType]
    context.enqueue(resize, "a.png")  # wrong: width is missing  # pyright: ignore[reportCallIssue]
    context.enqueue(resize, "a.png", width="200")  # wrong: width is a number  # pyright: ignore[reportArgumentType]
    context.enqueue(tidy, context, "a.png")  # wrong: the context is handed in  # pyright: ignore[reportCallIssue]
    context.enqueue(len, "a.png")  # wrong: not a task  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.using(delays=5)  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
    app.using(delays=5)  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
    context.using(group=5)  # wrong: a group's name is text  # pyright: ignore[reportArgumentType]
    app.using(cancellable="yes")  # wrong: True or False  # pyright: ignore[reportArgumentType]
    app.using(perform_at="tomorrow")  # wrong: unix seconds or a datetime  # pyright: ignore[reportArgumentType]
    resize("a.png")  # wrong: a plain call is as strict  # pyright: ignore[reportCallIssue]
    tidy("a.png")  # wrong: a plain call gives the context itself  # pyright: ignore[reportCallIssue]
    resize.call("a.png")  # wrong: width is missing  # pyright: ignore[reportCallIssue]
    tidy.call(context, "a.png")  # wrong: the context is handed in  # pyright: ignore[reportCallIssue]


@app.task(max_retries=3)  # wrong: there is no such option  # pyright: ignore[reportCallIssue]
def misspelt() -> None: ...


@app.task(context=True)  # wrong: its first parameter is not for the context  # pyright: ignore[reportArgumentType]
def without_context(path: str) -> None: ...
