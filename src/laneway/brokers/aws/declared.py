"""What SQS cannot do, as far as a declaration tells it. Needs neither boto3 nor a connection.

What only a call tells, such as a delay of a keyed call where there is no table, is refused when it is enqueued.
"""

from __future__ import annotations

from ...config import DEFAULT_QUEUE, TaskOptions
from ...jobs.data import Kind

#: A message cannot be hidden for longer than this.
LONGEST_RUN_S = 12 * 3600
#: The longest name of an SQS queue.
LONGEST_NAME = 80


def refusal(options: TaskOptions, kind: Kind, prefix: str = "") -> str | None:
    """A sentence, if SQS cannot do what such a task or listener needs; `prefix` stands before the names of queues."""
    if kind is Kind.COLLECTING:
        return "SQS cannot gather payloads; use Redis or SQLite for collecting tasks."
    limit_s = options.limit_s
    if limit_s is not None and limit_s > LONGEST_RUN_S:
        return (
            f"SQS leaves a job to its worker for {LONGEST_RUN_S // 3600} hours at most; give a time_limit of "
            f"{LONGEST_RUN_S} s or less, or use Redis or SQLite."
        )
    added = "-deadletter.fifo" if kind is Kind.KEYED else "-deadletter"
    queue = options.queue or DEFAULT_QUEUE
    before = "" if queue == DEFAULT_QUEUE else prefix
    longest = LONGEST_NAME - len(before) - len(added)
    if len(queue) > longest:
        begins = f"begins with the prefix {before} of the URL and " if before else ""
        return (
            f"SQS takes names of {LONGEST_NAME} characters at most, and the dead letters of this queue are in one that "
            f"{begins}ends with {added}; have the name of its queue be {longest} characters or fewer."
        )
    return None
