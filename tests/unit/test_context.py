"""Context: the job it describes, the jobs it holds back until the run succeeds, and postponing."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

import pytest

from laneway import Context, EnqueueError
from laneway.jobs.data import Claim, Payload

pytestmark = pytest.mark.unit


@dataclass
class SendMail:
    to: str

    def run(self) -> None: ...


@pytest.fixture
def tasks(app):
    app.task(SendMail)
    return {
        "plain": app.task(name="plain")(lambda n=None: None),
        "mail": app.task(name="mail", queue="mail")(lambda: None),
        "100%": app.task(name="100%")(lambda: None),
    }


@pytest.fixture
def context(app, tasks):
    claim = Claim("slow", 1, "job-1", 7, 0.0, 2, 4, 0, [Payload("{}")], None, {"trace": "5"})
    return Context(app, claim, tasks["plain"])


def test_it_tells_which_job_is_run(context):
    assert (context.id, context.queue, context.task) == ("job-1", "slow", "plain")
    assert (context.attempt, context.retry_count, context.fence) == (4, 2, 7)
    assert context.headers == {"trace": "5"}


def test_what_it_enqueues_is_held_back(context, tasks, stored):
    handle = context.enqueue(tasks["plain"], n=5)
    assert stored() == []
    assert [(job.key, job.body) for job in context.outbox] == [
        (handle.id, '{"_job_class":"plain","_job_params":{"n":5}}')
    ]


def test_the_queue_is_the_one_used_else_the_tasks_own_and_never_inherited(context, tasks):
    context.enqueue(tasks["plain"])
    context.enqueue(tasks["mail"])
    context.enqueue(tasks["mail"].using(queue="fast"))
    context.enqueue(SendMail("a"))
    context.using(queue="fast").enqueue(SendMail("a"))
    context.using(delay=60).enqueue(SendMail("a"))
    assert [job.queue for job in context.outbox] == ["default", "mail", "fast", "default", "fast", "default"]
    assert [job.delay_s for job in context.outbox] == [0, 0, 0, 0, 0, 60]


def test_what_is_enqueued_on_the_task_itself_is_sent_at_once(context, tasks, stored):
    tasks["plain"].enqueue()
    assert [job.queue for job in stored()] == ["default"]
    assert context.outbox == []


@pytest.mark.parametrize(
    ("enqueue", "sentence"),
    [
        (lambda context, tasks: context.enqueue(tasks["plain"], {1}), "list instead of set"),
        (lambda context, tasks: context.enqueue(tasks["plain"], 1, 2), "too many positional arguments"),
        (lambda context, tasks: context.enqueue(SendMail("a"), 1), "an instance carries its own arguments"),
        (lambda context, tasks: context.enqueue(SendMail), "enqueue an instance"),
        (lambda context, tasks: context.enqueue(lambda: 1), "A lambda is not a task"),
        (lambda context, tasks: context.using(delay=float("nan")), "delay must be a finite number"),
        (lambda context, tasks: context.using(queue="a b"), "queue must be 1 to 80"),
    ],
)
def test_what_cannot_be_enqueued_is_refused_and_not_held(context, tasks, refused, enqueue, sentence):
    with refused(sentence):
        enqueue(context, tasks)
    assert context.outbox == []


def test_a_run_enqueues_ten_thousand_jobs_and_no_more(context, tasks):
    for _ in range(10_000):
        context.enqueue(tasks["plain"])
    with pytest.raises(EnqueueError, match="A run may enqueue 10000 jobs at most"):
        context.enqueue(tasks["plain"])
    with pytest.raises(EnqueueError, match="A run may enqueue 10000 jobs at most"):
        context.using(delay=1).enqueue(SendMail("a"))
    assert len(context.outbox) == 10_000


@pytest.mark.parametrize(("delay", "seconds"), [(0, 0), (-1, 0), (1.5, 1.5), (timedelta(minutes=1), 60)])
def test_a_postponement_is_noted_zero_included(context, delay, seconds):
    assert context.postponed_s is None
    context.postpone(delay)
    assert context.postponed_s == seconds


def test_a_postponement_that_cannot_be_is_refused(context):
    with pytest.raises(EnqueueError, match="postpone must be seconds or a timedelta"):
        context.postpone("later")
    assert context.postponed_s is None


def test_every_line_of_its_logger_has_the_jobs_id(context, caplog):
    with caplog.at_level(logging.INFO, logger="laneway"):
        context.logger.info("sent %d of %s", 3, "5%")
        context.logger.debug("not wanted")
        context.logger.warning("plain 100%", extra={"more": 1})
    assert caplog.messages == ["[plain job-1] sent 3 of 5%", "[plain job-1] plain 100%"]
    record = caplog.records[1]
    assert (record.task, record.job, record.more) == ("plain", "job-1", 1)
    assert (record.filename, record.funcName) == ("test_context.py", "test_every_line_of_its_logger_has_the_jobs_id")


def test_a_per_cent_sign_in_a_tasks_name_is_no_format(app, context, tasks, caplog):
    other = Context(app, context._claim, tasks["100%"])
    with caplog.at_level(logging.INFO, logger="laneway"):
        other.logger.info("%s done", "all")
        other.logger.info("done")
    assert caplog.messages == ["[100% job-1] all done", "[100% job-1] done"]
