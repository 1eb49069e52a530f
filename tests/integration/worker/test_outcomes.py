"""What happens to a job for each way its run can end."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Annotated, Any

import pytest

from laneway import Batch, Bury, Context, Key, Laneway, NotATicketError, Retry, Serializer
from laneway.jobs.data import JobView, Kind, NewJob
from laneway.telemetry import WorkerStopped
from tests.support.worker_fixtures import PATIENCE_S, dead, stats


class Ending(BaseException):
    """Any exception that is not an Exception."""


def unprintable(raised: type[BaseException]) -> Exception:
    """An error that raises something else wherever it is shown."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    return Unprintable()


def test_a_failure_is_retried_until_the_morgue(app, drain):
    runs = []

    @app.task(max_retry_count=2, retry_in=lambda n: runs.append(f"retry {n}") or 0)
    def bad() -> None:
        runs.append("run")
        raise ValueError("boom")

    handle = bad.enqueue()
    drain(app)
    assert runs == ["run", "retry 0", "run", "retry 1", "run"]
    assert handle.status() == "dead"
    [job] = dead(app)
    assert job.error is not None
    assert job.error.startswith("ValueError: boom\n")
    assert "test_outcomes.py" in job.error
    assert (stats(app).failed, stats(app).dead) == (3, 1)


def test_max_retry_count_0_is_one_run(app, drain):
    runs = []

    @app.task(max_retry_count=0)
    def bad() -> None:
        runs.append(1)
        raise ValueError

    bad.enqueue()
    drain(app)
    assert runs == [1]
    assert len(dead(app)) == 1


def test_a_revived_job_has_all_its_retries_again(app, drain):
    runs = []

    @app.task(max_retry_count=1, retry_in=lambda n: 0)
    def bad() -> None:
        runs.append(1)
        raise ValueError

    handle = bad.enqueue()
    drain(app)
    assert app.broker.operate.revive("default", [handle.id]) == 1
    assert handle.status() == "queued"
    drain(app)
    assert len(runs) == 4


def test_retry_says_when(app, drain):
    @app.task
    def later() -> None:
        raise Retry(after=3600)

    handle = later.enqueue()
    drain(app)
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    assert job.error is not None


def test_bury_goes_straight_to_the_morgue(app, drain):
    @app.task
    def never() -> None:
        raise Bury("the order does not exist")

    never.enqueue()
    drain(app)
    assert dead(app)[0].error.startswith("Bury: the order does not exist")


def test_named_exceptions_are_never_retried(app, drain):
    @app.task(bury_on=[LookupError])
    def find() -> None:
        raise KeyError("nobody")

    find.enqueue()
    drain(app)
    assert len(dead(app)) == 1


@pytest.mark.parametrize("then_raises", [False, True])
def test_postponing_counts_no_failure_and_sends_nothing(make_app, drain, then_raises):
    errors = []
    app = make_app(error_handlers=[lambda error, context: errors.append(str(error))])

    @app.task(context=True)
    def wait(context: Context) -> None:
        context.enqueue(wait)
        context.postpone(3600)
        if then_raises:
            raise ValueError("too early")

    handle = wait.enqueue()
    drain(app)
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count, job.error) == ("delayed", -1, None)
    assert stats(app).length == 1
    assert errors == (["too early"] if then_raises else [])


def test_postponing_by_0_is_a_postponement(app, drain):
    runs = []

    @app.task(context=True)
    def twice(context: Context) -> None:
        runs.append(context.retry_count)
        if len(runs) == 1:
            context.postpone(0)

    twice.enqueue()
    drain(app)
    assert runs == [-1, -1]


def test_a_cancelled_error_in_a_handler_is_a_failure(app, drain):
    @app.task(max_retry_count=0)
    async def cancelled() -> None:
        raise asyncio.CancelledError

    @app.task(max_retry_count=0)
    def cancelled_in_a_thread() -> None:
        raise asyncio.CancelledError

    cancelled.enqueue()
    cancelled_in_a_thread.enqueue()
    assert drain(app) == 0
    assert len(dead(app)) == 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"_job_class":"os.system","_job_params":{"command":"true"}}', "There is no task named 'os.system'"),
        ('{"_job_class":"add","_job_params":{"a":"x"}}', "The params do not fit the task add"),
        ('{"_job_class":"add","_job_params":{"a":1,"b":2}}', "The params do not fit the task add"),
        ('{"_job_class":"add","_job_params":[1]}', "The params do not fit the task add"),
    ],
)
def test_what_cannot_be_run_fails_like_any_other_job(app, drain, body, sentence):
    ran = []

    @app.task
    def add(a: int) -> None:
        ran.append(a)

    handle = app.enqueue_body(body)
    add.enqueue(1)
    assert drain(app) == 0
    assert ran == [1], "the worker lives"
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    assert sentence in job.error


@pytest.mark.parametrize(
    "body", ["no json", "[1,2]", "null", "{}", '{"_job_params":{"a":1}}', '{"_job_class":5}', "[" * 5000]
)
def test_a_body_that_is_no_ticket_is_buried_at_once(make_app, drain, body):
    told = []
    app = make_app(error_handlers=[lambda error, context: told.append(type(error))])

    @app.task
    def add(a: int) -> None: ...

    handle = app.enqueue_body(body)
    add.enqueue(1)
    assert drain(app) == 0
    [job] = dead(app)
    assert (job.key, job.attempt) == (handle.id, 1)
    assert job.error.startswith("NotATicketError: The body is not a ticket: ")
    assert told == [NotATicketError]
    assert stats(app).processed == 1, "the worker lives"


def test_a_call_of_a_key_that_is_no_ticket_is_buried_alone(app, drain):
    ran = []

    @app.task
    def add(key: Annotated[str, Key], a: int) -> None:
        ran.append(a)

    add.enqueue("k", 1)
    app.broker.enqueue([NewJob(queue="default", key="k", body="no json", kind=Kind.KEYED, identity="broken")])
    add.enqueue("k", 2)
    assert drain(app) == 0
    assert ran == [1, 2]
    [job] = dead(app)
    assert [payload.body for payload in job.payloads] == ["no json"]


def test_exhausted_retries_are_told_after_they_are_settled(app, drain):
    told = []

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.append((jobs, handle.status())))
    def bad() -> None:
        raise ValueError("boom")

    handle = bad.enqueue()
    drain(app)
    [([job], status)] = told
    assert (job.key, status) == (handle.id, "dead")
    assert job.error.startswith("ValueError: boom")


def test_failing_hooks_harm_nothing(make_app, drain, caplog):
    def broken(*args: object) -> float:
        raise RuntimeError("the hook itself is broken")

    app = make_app(error_handlers=[broken])

    @app.task(max_retry_count=1, retry_in=broken, retries_exhausted=broken)
    def bad() -> None:
        raise ValueError("boom")

    handle = bad.enqueue()
    assert drain(app) == 0
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    app.broker.reschedule("default", handle.id)
    assert drain(app) == 0
    assert handle.status() == "dead"


def test_what_ends_the_process_leaves_the_job_to_be_taken_back(app, drain):
    @app.task
    def leave() -> None:
        raise SystemExit(3)

    handle = leave.enqueue()
    assert drain(app) == 1
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count, job.attempt) == ("queued", -1, 1)


ENDINGS = [GeneratorExit, KeyboardInterrupt, SystemExit, Ending]
ASYNC = ["at once", "later"]
#: Kinds of task, and of handlers; a sync one with a time limit runs in another process.
KINDS = [
    *((kind, how) for kind in ("plain", "keyed", "collecting", "listener") for how in ("sync", *ASYNC, "hidden")),
    *(("limited", how) for how in ASYNC),
    ("plain", "awaits"),
]
#: Each kind with one ending, and each ending with one kind.
ENDED = [
    *((kind, how, GeneratorExit) for kind, how in KINDS),
    *(("plain", how, raised) for how in ("sync", *ASYNC, "awaits", "hidden") for raised in ENDINGS[1:]),
]


def sync_and_async(raised: type[BaseException]) -> dict[str, Any]:
    """Handlers that raise the same: a function, and two coroutines, of which one gives way before."""

    def sync(*args: Any) -> None:
        raise raised

    async def at_once(*args: Any) -> None:
        raise raised

    async def later(*args: Any) -> None:
        await asyncio.sleep(0.001)
        raise raised

    async def awaits(*args: Any) -> None:
        await asyncio.gather(later(), asyncio.sleep(0.01))

    @functools.wraps(sync)
    def hidden(*args: Any) -> Any:  # as a decorator makes it, that does not say that its function is async
        return later(*args)

    return {"sync": sync, "at once": at_once, "later": later, "awaits": awaits, "hidden": hidden}


def stored(app: Laneway, kind: str, handler: Any) -> tuple[str, str]:
    """Declare a task of this kind that calls a handler, and enqueue one. Returns the job's queue and key."""
    if asyncio.iscoroutinefunction(handler):

        async def plain() -> None:
            await handler()

        async def keyed(key: Annotated[str, Key]) -> None:
            await handler()

        async def collects(batch: Batch[int]) -> None:
            await handler()

        async def hears(value: int) -> None:
            await handler()
    else:

        def plain() -> None:
            return handler()

        def keyed(key: Annotated[str, Key]) -> None:
            return handler()

        def collects(batch: Batch[int]) -> None:
            return handler()

        def hears(value: int) -> None:
            return handler()

    if kind == "plain":
        return "default", app.task(plain).enqueue().id
    if kind == "limited":
        return "default", app.task(time_limit=60)(plain).enqueue().id
    if kind == "keyed":
        app.task(keyed).enqueue("a")
        return "default", "a"
    if kind == "collecting":
        app.collect(collects).enqueue("a", 1)
        return "collects", "a"
    listener = app.listener("placed")(hears)
    app.broker.events.subscribe(listener.subscription)
    queue = listener.subscription.queue
    return queue, f"{app.publish('placed', 1, generic=True)}@{queue}"


def deaths(job: JobView) -> int:
    return job.deaths or job.payloads[0].deaths


@pytest.mark.parametrize(("kind", "handler", "raised"), ENDED)
def test_what_is_no_exception_ends_the_worker_whether_its_handler_is_async_or_not(
    make_app, drain, kind, handler, raised
):
    app = make_app(name="shop", env="test")
    queue, key = stored(app, kind, sync_and_async(raised)[handler])
    assert drain(app, shutdown_timeout_s=5) == 1
    [job] = app.broker.inspect.find(queue, key)
    assert (job.status, job.retry_count, deaths(job)) == ("queued", -1, 1)


@pytest.mark.parametrize(("kind", "handler"), KINDS)
def test_a_cancellation_of_its_own_is_a_failure(make_app, drain, kind, handler):
    app = make_app(name="shop", env="test")
    queue, key = stored(app, kind, sync_and_async(asyncio.CancelledError)[handler])
    assert drain(app) == 0
    [job] = app.broker.inspect.find(queue, key)
    assert (job.status, job.retry_count, deaths(job)) == ("delayed", 0, 0)
    assert job.error.startswith("CancelledError")


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("raised", [RuntimeError, *ENDINGS])
def test_an_error_that_cannot_be_printed_is_a_failure_like_any_other(make_app, drain, kind, raised):
    ran, app = [], make_app(error_handlers=[lambda error, context: 1 / 0])

    @app.task(max_retry_count=0)
    def bad() -> None:
        raise unprintable(raised)

    @app.task(max_retry_count=0)
    async def bad_too() -> None:
        raise unprintable(raised) from unprintable(raised)

    @app.task
    def good() -> None:
        ran.append(1)

    (bad if kind == "sync" else bad_too).enqueue_many([()] * 7)
    good.enqueue()
    assert drain(app) == 0
    assert ran == [1]
    assert {job.error.partition("\n")[0] for job in dead(app)} == {
        f"Unprintable: (its text cannot be shown: {raised.__name__})"
    }


@pytest.mark.parametrize("raised", ENDINGS)
def test_wherever_an_error_that_cannot_be_printed_comes_from_it_ends_no_worker(make_app, drain, raised):
    def fail(*args: Any) -> Any:
        raise unprintable(raised)

    app = make_app(error_handlers=[fail])

    @app.task(max_retry_count=1, retry_in=fail)
    def bad() -> None:
        raise ValueError("no")

    @app.task
    def buries() -> None:
        raise Bury(unprintable(raised))  # type: ignore[arg-type]

    @app.task(max_retry_count=0)
    def retries() -> None:
        raise Retry(unprintable(raised))  # type: ignore[arg-type]

    @app.collect(max_retry_count=0)
    def gather(batch: Batch[int]) -> None:
        batch.fail("a", unprintable(raised))

    handle = bad.enqueue()
    buries.enqueue()
    retries.enqueue()
    gather.enqueue("a", 1)
    assert drain(app) == 0
    assert handle.status() == "delayed"
    assert sorted(job.error.partition(":")[0] for job in dead(app)) == ["Bury", "Retry"]
    [job] = dead(app, "gather")
    assert job.error.startswith("Unprintable: (its text cannot be shown")


def test_a_task_whose_params_do_not_fit_fails_by_its_own_options(app, drain):
    @app.task(max_retry_count=0)
    def once(number: int) -> None: ...

    handle = app.enqueue_body('{"_job_class":"once","_job_params":{"number":"x"}}')
    drain(app)
    assert handle.status() == "dead"


def test_of_a_key_the_call_that_cannot_be_read_without_ending_the_worker_counts_a_death(make_app, drain):
    class Exiting(Serializer):
        def loads(self, body: str):
            if '"number":2' in body:
                raise SystemExit(4)
            return super().loads(body)

    app, ran = make_app(serializer=Exiting), []

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        ran.append(number)

    for number in range(1, 4):
        work.enqueue("a", number)
    for _ in range(3):
        assert drain(app) == 1
    assert drain(app) == 0
    assert ran == [1, 3]
    [job] = dead(app)
    assert '"number":2' in job.payloads[0].body


def test_a_serializer_that_exits_ends_the_worker_and_loses_nothing(make_app, drain):
    class Exiting(Serializer):
        def loads(self, body: str):
            raise SystemExit(4)

    app = make_app(serializer=Exiting)

    @app.task
    def ping() -> None: ...

    handle = ping.enqueue()
    assert drain(app) == 1
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.deaths) == ("queued", 1)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_run_that_is_being_read_when_another_ends_the_worker_does_not_begin(make_app, drain, kind):
    """The worker has given it back by then: it would run beside its own repeat."""
    reading, over, begun, ran = threading.Event(), threading.Event(), [], []

    class Slow(Serializer):
        def loads(self, body: str):
            if "charge" in body and not over.is_set():
                reading.set()
                assert over.wait(PATIENCE_S)
            return super().loads(body)

    app = make_app(serializer=Slow)

    @app.task
    def charge(order: Annotated[str, Key]) -> None:
        ran.append(order)

    @app.task
    async def charge_too(order: Annotated[str, Key]) -> None:
        ran.append(order)

    @app.task(queue="other")
    def leave() -> None:
        assert reading.wait(PATIENCE_S)
        if not begun:
            begun.append(1)
            raise SystemExit(3)

    handle = (charge if kind == "sync" else charge_too).enqueue("a")
    leave.enqueue()
    assert drain(app, concurrency=2) == 1
    assert handle.status() == "queued"
    over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("laneway-run"):
            thread.join(PATIENCE_S)
    assert (ran, handle.status()) == ([], "queued")
    assert drain(app) == 0
    assert ran == ["a"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_handler_that_exits_ends_the_worker_and_loses_nothing(make_app, drain, kind):
    def leave(error: BaseException, context: Context) -> None:
        raise SystemExit(4)

    app = make_app(error_handlers=[leave])

    @app.task
    def bad() -> None:
        raise ValueError("boom")

    @app.task
    async def bad_too() -> None:
        raise ValueError("boom")

    handle = (bad if kind == "sync" else bad_too).enqueue()
    assert drain(app) == 1
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.deaths) == ("queued", 1)


def test_a_worker_that_ends_waits_for_error_handlers(make_app, drain):
    """Until they have returned, the failure is not recorded. Here another run has ended the worker meanwhile."""
    handling, stopped = threading.Event(), threading.Event()

    def slow(error: BaseException, context: Context) -> None:
        handling.set()
        stopped.wait(0.5)  # it is not, if all is well

    app = make_app(error_handlers=[slow])
    app.telemetry.subscribe(WorkerStopped, lambda event: stopped.set())

    @app.task
    def bad() -> None:
        raise ValueError("no")

    @app.task
    def ends() -> None:
        assert handling.wait(PATIENCE_S)
        raise SystemExit(3)

    handle = bad.enqueue()
    ends.enqueue()
    assert drain(app, concurrency=2) == 1
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)


def test_a_hook_that_exits_harms_nothing_else(app, drain):
    told = []

    def leave(jobs) -> None:
        told.extend(job.key for job in jobs)
        raise SystemExit(3)

    @app.task(max_retry_count=0, retries_exhausted=leave)
    def bad() -> None:
        raise ValueError("boom")

    handles = bad.enqueue_many([(), ()])
    assert drain(app) == 0
    assert sorted(told) == sorted(handle.id for handle in handles)


def test_something_left_on_the_loop_that_exits_ends_the_worker(app, drain):
    @app.task
    async def careless() -> None:
        async def later() -> None:
            raise SystemExit(3)

        careless.left = asyncio.get_running_loop().create_task(later())
        await asyncio.sleep(0.5)

    careless.enqueue()
    assert drain(app) == 1
    # Retrieved here. Else asyncio logs it with its traceback when it is collected. If that happens while Python 3.11
    # parses a file, parsing fails, in another test (python/cpython#106905).
    assert isinstance(careless.left.exception(), SystemExit)
