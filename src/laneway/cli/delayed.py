"""`laneway delayed`: what waits for its time, and what can be done about it."""

from __future__ import annotations

import click

from . import jobs, options
from .acting import act_on_all, act_on_keys, check_keys_or_all
from .looking import list_jobs
from .opening import known_queues, looking


@click.group(
    cls=options.ListByDefault,
    epilog=options.examples(
        "laneway delayed                               the jobs that wait, the next one first",
        "laneway delayed shop.py --queue mail --json",
        "laneway delayed run 019a8b…                   now rather than later",
        "laneway delayed reschedule 019a8b… --at 2030-01-31T12:00:00Z",
        "laneway delayed cancel 019a8b…",
    ),
)
def delayed() -> None:
    """List, run, reschedule and cancel jobs that are not due yet.

    `list` may be left out: its options follow `laneway delayed` directly.
    """


@delayed.command("list", epilog=options.examples("laneway delayed list", "laneway delayed list --queue mail -n 10"))
@options.optional_target
@options.together(options.queue, options.limit, options.after, options.url, options.as_json)
def list_(target: str | None, queue: str | None, limit: int, after: str | None, url: str | None, as_json: bool) -> None:
    """List jobs that are not due yet, the next one first."""
    list_jobs("delayed", "delayed", target=target, url=url, queue=queue, limit=limit, after=after, as_json=as_json)


@delayed.command(epilog=options.examples("laneway delayed run 019a8b…", "laneway delayed run --all --queue mail"))
@options.some_keys
@click.option("--all", "everything", is_flag=True, help="All that are delayed, retries included.")
@options.together(options.queue, options.app, options.url)
def run(keys: tuple[str, ...], everything: bool, queue: str | None, target: str | None, url: str | None) -> None:
    """Have delayed jobs run now: a worker does it, not this command."""
    check_keys_or_all(keys, everything)
    with looking(target, url) as broker:
        if everything:
            wanted = known_queues(broker, queue)
            totals = {stats.queue: stats.delayed for stats in broker.stats() if stats.queue in wanted}
            act_on_all(
                broker,
                totals,
                "delayed",
                act=lambda name, page: sum(broker.reschedule(name, key) for key in page),
                done="Moved to now:",
            )
        else:
            act_on_keys(
                broker,
                queue,
                keys,
                which="queued",
                act=lambda job: broker.reschedule(job.queue, job.key),
                done="Moved to now:",
            )


delayed.add_command(jobs.show)
delayed.add_command(jobs.cancel)
delayed.add_command(jobs.reschedule)
