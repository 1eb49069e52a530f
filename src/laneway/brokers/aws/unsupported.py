"""Refuses tasks and jobs that SQS cannot handle, with a sentence that names an alternative.

`refusal` checks a declaration, without boto3 and without a connection; importing this file does not load boto3.
Limits that only a call shows, such as the delay of a keyed call without a table, are checked at enqueue. All jobs of
a call are checked before the first is sent: SQS would refuse some of them, keep some forever, and alter the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...broker import Capabilities, Feature, SettleBatch
from ...config import DEFAULT_QUEUE, TaskOptions
from ...errors import EnqueueError
from ...jobs.data import Kind, NewJob
from ..shared import check_jobs
from .settings import BATCH, LONGEST_VISIBILITY_S, MAX_NAME, AWSSettings
from .sqs.hop_delay import task_in
from .sqs.message import ROOM, OutgoingMessage, is_group, refused_character, size_of

#: The longest run: a message cannot be hidden for longer.
LONGEST_RUN_S = LONGEST_VISIBILITY_S
#: Bytes of a message that are not available to its body: for its id and key, and for later growth.
BESIDE = ROOM + 256


def capabilities(settings: AWSSettings) -> Capabilities:
    """What the broker of these settings can do."""
    return Capabilities(
        shared=True,
        remote=True,
        max_body=settings.max_body - BESIDE,
        makes_queues=False,
        holders_keep=True,
        relays=True,
        derives_ids=True,
        settle_batch=SettleBatch(BATCH, 0.1),
        ahead_s=0.2,  # requests are slower than on other brokers
        weight=BATCH,
        refusal=partial(refusal, prefix=settings.prefix),
        lacks=LACKS,
        conditions=CONDITIONS,
    )


#: The features that SQS lacks, each with the reason and an alternative.
LACKS: dict[Feature, str] = {
    "shards": "SQS queues have no shards, and so nothing to reshard; SQLite and Redis have them.",
    "collecting": "SQS cannot gather payloads; use Redis or SQLite for collecting tasks.",
    "priorities": "SQS has no priorities; leave it out, have a queue of its own for what is urgent, or use Redis or "
    "SQLite.",
    "exact_counts": "SQS counts its messages approximately, and some seconds late; take the numbers as estimates.",
    "sharding": "SQS queues have no shards, and a turn claims from the whole queue; SQLite and Redis have them.",
    "queued_jobs": "SQS neither shows nor changes a job in a queue; enqueue with using(cancellable=True), and a "
    "delayed job waits in a DynamoDB table, where it can be found, cancelled and moved.",
    "unique_keys": "SQS stores and delivers a message at least once, and does not look at what is in a queue already; "
    "have tasks bear being run twice.",
    "due_order": "SQS delivers the calls of a key in the order of their arrival and plain jobs in about that order, "
    "whatever their due times; use Redis or SQLite if due times are to decide.",
    "large_claims": "SQS delivers ten messages at a time, and no more of a key until those are settled; a run gets ten "
    "calls at most.",
    "leases": "SQS itself delivers a job again if its worker does not renew it in time; nothing is to be reclaimed.",
    "control_characters": "SQS takes no control characters but tabs and line breaks; escape them, as JSON does.",
}


_TABLE = "with the table"
_RECORDS = "with the table and `records=on`"
_HEARTBEAT = "with the table; numbers are up to 10 s old"
#: What needs a waiter table, which the broker looks for when it is used, and what takes a moment on SQS.
CONDITIONS: dict[str, str] = {
    "delays of keyed jobs": _TABLE,
    "cancelling and moving delayed jobs": _TABLE,
    "running delayed jobs now": _TABLE,
    "listing delayed jobs": _TABLE,
    "the status of a delayed job": _TABLE,
    "the status of any other job": _RECORDS,
    "copies of an event that are delayed: listed, cancelled": _TABLE,
    "counting what is processed and failed": _HEARTBEAT,
    "listing workers": _HEARTBEAT,
    "pausing queues": _TABLE,
    # Receiving threads ask SQS. A turn and a wait see what these have brought, also of what the turn itself made due.
    "a turn claims all that is due, and a wait names all queues with due jobs": "those whose messages have arrived",
    # A receiver may get a message before it is known how its job was settled, and hides it for a second (`MOMENT_S`).
    "what is given back, or retried without a delay, is due at once": "within a second",
}


def refusal(options: TaskOptions, kind: Kind, prefix: str = "") -> str | None:
    """A sentence if SQS cannot do what such a task or listener needs. `prefix` is the prefix of queue names."""
    limit_s = options.limit_s
    if limit_s is not None and limit_s > LONGEST_RUN_S:
        return (
            f"SQS leaves a job to its worker for {LONGEST_RUN_S // 3600} hours at most; give a time_limit of "
            f"{LONGEST_RUN_S} s or less, or use Redis or SQLite."
        )
    added = "-deadletter.fifo" if kind is Kind.KEYED else "-deadletter"
    queue = options.queue or DEFAULT_QUEUE
    before = "" if queue == DEFAULT_QUEUE else prefix
    longest = MAX_NAME - len(before) - len(added)
    if len(queue) > longest:
        begins = f"begins with the prefix {before} of the URL and " if before else ""
        return (
            f"SQS takes names of {MAX_NAME} characters at most, and the dead letters of this queue are in one that "
            f"{begins}ends with {added}; have the name of its queue be {longest} characters or fewer."
        )
    return None


#: The most bytes of a message that fits, with the other attributes, into an item of 400 KiB.
LARGEST_WAITING = 400_000


def check_new(jobs: Sequence[NewJob]) -> None:
    """Refuse new jobs that cannot be stored in SQS. Does not check sizes."""
    for job in jobs:
        if problem := _problem(job):
            raise _refused_new(job, problem)
    check_jobs(jobs)


def check_size(job: NewJob, outgoing: OutgoingMessage, limit: int) -> None:
    """Refuse a message that is too large, or would be too large when it is sent on."""
    # The id of an event's copy contains the name of its queue.
    size = size_of(outgoing) + ROOM + (MAX_NAME + 1 if job.to_topic else 0)
    if size > limit:
        taker, do = ("SNS", "publish") if job.to_topic else ("this queue", "enqueue")
        raise _refused_new(
            job,
            f"its message is {size} bytes with all that travels beside its body, and {taker} takes {limit} at most; "
            f"store the data elsewhere and {do} where it is",
        )


def needs_table(queue: str, key: str, body: str, fifo: bool) -> EnqueueError:
    """The error for a delay that needs a table, if there is none."""
    why = "a keyed call cannot be delayed on SQS" if fifo else "a delayed job cannot be cancelled on SQS"
    return _refused(
        queue,
        key,
        body,
        f"{why} without a DynamoDB table for the queue {queue}; create one with `laneway aws create`, or use Redis or "
        "SQLite",
    )


def too_large_to_wait(queue: str, key: str, body: str, size: int) -> EnqueueError:
    """The error for a delayed message that fits into the queue but not into the table."""
    return _refused(
        queue,
        key,
        body,
        f"its message is {size} bytes, and DynamoDB, where it would wait, takes {LARGEST_WAITING} at most; store the "
        "data elsewhere and enqueue where it is",
    )


def _refused_new(job: NewJob, problem: str) -> EnqueueError:
    if job.to_topic:
        return EnqueueError(
            f"The event {job.key!r} cannot be published to the topic {job.queue}: {problem}.",
            place=(job.queue, job.key),
        )
    return _refused(job.queue, job.key, job.body, problem)


def _refused(queue: str, key: str, body: str, problem: str) -> EnqueueError:
    # A key with a lone surrogate is one of the problems, and cannot be printed as it is.
    task, shown = task_in(body), ascii(key) if not key.isprintable() else repr(key)
    who = f"Task {task}: the job {shown} cannot be enqueued" if task else f"The job {shown} cannot be enqueued"
    return EnqueueError(f"{who}: {problem}.", place=(queue, key))


def _problem(job: NewJob) -> str | None:
    if job.kind is Kind.COLLECTING:
        return LACKS["collecting"].removesuffix(".")
    if job.to_topic and (job.kind is not Kind.PLAIN or job.timed):
        return "SNS hands on what is published at once; leave its time out, or send it to one queue, which may be later"
    if job.priority:
        return LACKS["priorities"].removesuffix(".")
    if not job.body:
        return "its body is empty, which SQS does not take; give it one"
    if character := refused_character(job.body):
        if job.event is not None:
            return f"its value holds the character {character}, which SQS does not take; leave it out of the value"
        return f"its body holds the character {character}, which SQS does not take; leave it out, or escape it"
    group = job.hints.group if job.hints else ""
    if group and job.kind is Kind.PLAIN and not is_group(group):
        return f"its group must be 1 to 128 letters, digits and punctuation of ASCII on SQS, not {group!r}"
    return None
