"""Right and wrong calls of class tasks, for the type checkers; see `test_checkers.py`."""

from dataclasses import dataclass
from typing import NamedTuple, assert_type

from laneway import Context, Handle, Laneway

app = Laneway("memory:")


@app.task
@dataclass
class SendMail:
    to: str
    body: str = ""

    def run(self, context: Context) -> None:
        context.enqueue(Tidy())


@app.task(queue="slow", name="Report2")
class Report(NamedTuple):
    day: int

    async def run(self) -> int:
        return self.day


@app.task
class Tidy:
    def run(self) -> None: ...


@dataclass
class NoTask:
    to: str


def right(context: Context) -> None:
    assert_type(SendMail(to="a@example.org"), SendMail)
    assert_type(SendMail("a@example.org", body="hi").to, str)
    assert_type(Report(day=3), Report)
    assert_type(app.enqueue(SendMail(to="a@example.org", body="hi")), Handle)
    assert_type(app.enqueue(Report(3)), Handle)
    assert_type(app.using(delay=60).enqueue(Tidy()), Handle)
    assert_type(app.enqueue_many([SendMail("a"), SendMail("b")]), list[Handle])
    assert_type(context.enqueue(SendMail("a")), Handle)
    assert_type(context.using(queue="x", delay=5).enqueue(Report(3)), Handle)


def wrong(context: Context) -> None:
    app.enqueue(SendMail())  # wrong: to is missing  # pyright: ignore[reportCallIssue]
    app.enqueue(SendMail(to=17))  # wrong: to is text  # pyright: ignore[reportArgumentType]
    app.enqueue(SendMail("a", subject="b"))  # wrong: there is no such field  # pyright: ignore[reportCallIssue]
    app.enqueue(Report("monday"))  # wrong: day is a number  # pyright: ignore[reportArgumentType]
    app.enqueue(NoTask("a"))  # wrong: it has no run()  # pyright: ignore[reportArgumentType]
    app.enqueue("a")  # wrong: text is no task  # pyright: ignore[reportArgumentType]
    app.enqueue(SendMail("a"), "b")  # wrong: an instance carries its own arguments  # pyright: ignore[reportCallIssue]
    app.enqueue_many([NoTask("a")])  # wrong: it has no run()  # pyright: ignore[reportArgumentType]
    app.using(delay=60).enqueue(NoTask("a"))  # wrong: it has no run()  # pyright: ignore[reportArgumentType]
    context.enqueue(NoTask("a"))  # wrong: it has no run()  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.enqueue(SendMail(17))  # wrong: to is text  # pyright: ignore[reportArgumentType]
    context.enqueue(SendMail("a"), "b")  # wrong: an instance carries its own arguments  # pyright: ignore[reportArgumentType, reportCallIssue]
    context.using(queue="x").enqueue(NoTask("a"))  # wrong: it has no run()  # pyright: ignore[reportArgumentType]
    context.using(queue=5)  # wrong: a queue's name is text  # pyright: ignore[reportArgumentType]
    SendMail("a").runs()  # wrong: a class stays the class that it was  # pyright: ignore[reportAttributeAccessIssue]
