"""`laneway jobs`: lists and shows queued or running jobs; runs, moves, cancels, buries and deletes them.

`run` makes delayed and failed jobs due now. `bury` and `delete` end failed jobs, however many retries they have left.
`laneway delayed` shares `run`, `show`, `cancel` and `reschedule`.
"""

from __future__ import annotations

from typing import Any

import click

from ...broker import Broker, Listing
from ...errors import ConfigError
from ...jobs.data import JobView
from .. import options
from ..act import FAILED, QUEUED, act_on, act_on_all, check_keys_or_all, choose, confirm, confirm_deletion, counted
from ..listing import list_jobs, show_jobs
from ..target import open_without_app
from ..times import duration, moment

all_failed = click.option(
    "--all-failed", "everything", is_flag=True, help="All that have failed and wait for their retry."
)


@click.command(
    epilog=options.examples(
        "laneway jobs run 019a8b… order-17",
        "laneway jobs run --all-failed --queue mail    the retries alone",
        "laneway jobs run --all                        all that are not due yet, retries included",
    )
)
@options.some_keys
@click.option("--all", "everything", is_flag=True, help="All that are not due yet, retries included.")
@click.option("--all-failed", "failures", is_flag=True, help="All that have failed and wait for their retry.")
@options.together(options.queue, options.app, options.url)
def run(
    keys: tuple[str, ...], everything: bool, failures: bool, queue: str | None, target: str | None, url: str | None
) -> None:
    """Have jobs run now that are not due yet.

    A worker does it, not this command.
    """
    if everything and failures:
        raise ConfigError("Give --all or --all-failed, not both.")
    check_keys_or_all(keys, everything or failures, "--all-failed" if failures else "--all")
    with open_without_app(target, url) as broker:
        if failures:
            act_on_all(
                broker, counted(broker, queue, "retries"), "retries", broker.operate.run_now, done="Moved to now:"
            )
        elif everything:
            act_on_all(
                broker, counted(broker, queue, "delayed"), "delayed", broker.operate.run_now, done="Moved to now:"
            )
        else:
            chosen = choose(broker, queue, keys, QUEUED)
            act_on(chosen, lambda job: broker.operate.run_now(job.queue, [job.key]), done="Moved to now:")


@click.command(epilog=options.examples("laneway jobs bury order-17", "laneway jobs bury --all-failed --queue mail"))
@options.some_keys
@all_failed
@options.together(options.queue, options.app, options.url)
def bury(keys: tuple[str, ...], everything: bool, queue: str | None, target: str | None, url: str | None) -> None:
    """Move failed jobs to the morgue, whatever retries they have.

    Of a keyed job the call that failed is buried, and those behind it run; of a collecting job all payloads are.
    """
    check_keys_or_all(keys, everything, "--all-failed")
    with open_without_app(target, url) as broker:
        if everything:
            act_on_all(broker, counted(broker, queue, "retries"), "retries", broker.operate.bury_failed, done="Buried")
        else:
            chosen = choose(broker, queue, keys, FAILED)
            act_on(chosen, lambda job: broker.operate.bury_failed(job.queue, [job.key]), done="Buried")


@click.command(epilog=options.examples("laneway jobs delete order-17", "laneway jobs delete --all-failed --yes"))
@options.some_keys
@all_failed
@options.together(options.yes, options.queue, options.app, options.url)
def delete(
    keys: tuple[str, ...], everything: bool, yes: bool, queue: str | None, target: str | None, url: str | None
) -> None:
    """Delete failed jobs for good, whatever retries they have. Asks first.

    Of a keyed job the call that failed is deleted, and those behind it run; of a collecting job all payloads are.
    """
    check_keys_or_all(keys, everything, "--all-failed")
    with open_without_app(target, url) as broker:
        if everything:
            totals = counted(broker, queue, "retries")
            if confirm_deletion(totals, "failed", yes):
                act_on_all(broker, totals, "retries", broker.operate.delete_failed, done="Deleted")
            return
        chosen = choose(broker, queue, keys, FAILED)
        if chosen.jobs:
            confirm(f"Delete {chosen.total('failed')} for good?", yes)
        act_on(chosen, lambda job: broker.operate.delete_failed(job.queue, [job.key]), done="Deleted")


when = options.together(
    click.option("--delay", callback=duration, metavar="DURATION", help="So long from now: seconds, or 15m, 2h, 7d."),
    click.option("--at", callback=moment, metavar="TIME", help="Then: ISO 8601 with a time zone, or unix seconds."),
)


@click.group(
    cls=options.ListByDefault,
    epilog=options.examples(
        "laneway jobs                                  the jobs that are queued",
        "laneway jobs shop.py --which running          ... that are running, of this app",
        "laneway jobs --which retries --by retry_count --reverse",
        "laneway jobs --queue mail --limit 5 --json",
        "laneway jobs show order-17 --body",
        "laneway jobs run --all-failed                 now: the cause is mended",
        "laneway jobs bury order-17                    so that what waits behind it can run",
        "laneway jobs cancel 019a8b… 019a8c…",
    ),
)
def jobs() -> None:
    """List, show, run, move, cancel, bury and delete jobs.

    Arguments are never shown unless you ask with --body. `list` may be left out: its options follow `laneway jobs`
    directly.
    """


@jobs.command(
    "list",
    epilog=options.examples(
        "laneway jobs list",
        "laneway jobs list --which retries --url sqlite:///laneway.db",
        "laneway jobs list --by key --from order-17",
        "laneway jobs list --by perform_at --from 2030-01-31T12:00:00Z --reverse",
    ),
)
@options.optional_target
@click.option(
    "--which",
    type=click.Choice(["queued", "delayed", "retries", "running"]),
    default="queued",
    show_default=True,
    help="delayed and retries are parts of queued; running is what is being run now.",
)
@options.listing("perform_at", "key", "retry_count")
def list_(target: str | None, which: Listing, **given: Any) -> None:
    """List jobs, by the time they are due unless told otherwise."""
    list_jobs(["jobs", *(["--which", which] if which != "queued" else [])], which, target=target, **given)


@jobs.command(epilog=options.examples("laneway jobs show 019a8b…", "laneway jobs show order-17 --body --json"))
@click.argument("key")
@options.together(options.body, options.queue, options.app, options.url, options.as_json)
def show(key: str, body: bool, queue: str | None, target: str | None, url: str | None, as_json: bool) -> None:
    """Show a job in full, with its whole error.

    A key may have one that runs, one that is set aside until then, and a dead one; all are shown.
    """
    show_jobs(key, dead_only=False, target=target, url=url, queue=queue, body=body, as_json=as_json)


@jobs.command(epilog=options.examples("laneway jobs cancel 019a8b… 019a8c…", "laneway jobs cancel order-17 --yes"))
@options.keys
@options.together(options.yes, options.queue, options.app, options.url)
def cancel(keys: tuple[str, ...], yes: bool, queue: str | None, target: str | None, url: str | None) -> None:
    """Remove jobs that have not begun, with all their payloads. Asks first where that is more than one."""
    with open_without_app(target, url) as broker:
        chosen = choose(broker, queue, keys, QUEUED, set_aside=True)
        if any(job.size > 1 for job in chosen.jobs):
            confirm(f"Cancel {chosen.total()}?", yes)
        act_on(chosen, lambda job: broker.cancel(job.queue, job.key) or _cancel_aside(broker, job), done="Cancelled")


def _cancel_aside(broker: Broker, job: JobView) -> bool:
    """Remove payloads that are set aside during a run: one by one, and no more than there were when we looked."""
    left = job.size
    while left > 0:
        aside = [found for found in broker.inspect.find(job.queue, job.key) if QUEUED.holds(found)]
        payloads = aside[0].payloads[:left] if aside else []
        removed = sum(broker.cancel(job.queue, job.key, payload.identity) for payload in payloads if payload.identity)
        if not removed:
            break
        left -= removed
    return left < job.size


@jobs.command(
    epilog=options.examples(
        "laneway jobs reschedule 019a8b… --delay 15m",
        "laneway jobs reschedule 019a8b… --at 2030-01-31T12:00:00+01:00",
    )
)
@options.keys
@when
@options.together(options.queue, options.app, options.url)
def reschedule(
    keys: tuple[str, ...],
    delay: float | None,
    at: float | None,
    queue: str | None,
    target: str | None,
    url: str | None,
) -> None:
    """Move jobs that have not begun to another time."""
    if (delay is None) is (at is None):
        raise ConfigError("Give --delay or --at, not both." if at is not None else "Say when, with --delay or --at.")
    with open_without_app(target, url) as broker:
        act_on(
            choose(broker, queue, keys, QUEUED),
            lambda job: broker.reschedule(job.queue, job.key, delay_s=delay or 0.0, perform_at=at),
            done="Rescheduled",
        )


jobs.add_command(run)
jobs.add_command(bury)
jobs.add_command(delete)
