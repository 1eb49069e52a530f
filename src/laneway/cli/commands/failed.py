"""Not waiting for the time of a job that is delayed or has failed: `run` it now, `bury` or `delete` it."""

from __future__ import annotations

import click

from ...errors import ConfigError
from .. import options
from ..act import (
    FAILED,
    QUEUED,
    act_on,
    act_on_all,
    check_keys_or_all,
    choose,
    confirm,
    confirm_deletion,
    counted,
)
from ..opening import looking

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
    with looking(target, url) as broker:
        if failures:
            act_on_all(broker, counted(broker, queue, "retries"), "retries", broker.run_now, done="Moved to now:")
        elif everything:
            act_on_all(broker, counted(broker, queue, "delayed"), "delayed", broker.run_now, done="Moved to now:")
        else:
            chosen = choose(broker, queue, keys, QUEUED)
            act_on(chosen, lambda job: broker.run_now(job.queue, [job.key]), done="Moved to now:")


@click.command(epilog=options.examples("laneway jobs bury order-17", "laneway jobs bury --all-failed --queue mail"))
@options.some_keys
@all_failed
@options.together(options.queue, options.app, options.url)
def bury(keys: tuple[str, ...], everything: bool, queue: str | None, target: str | None, url: str | None) -> None:
    """Move failed jobs to the morgue, whatever retries they have.

    Of a keyed job the call that failed is buried, and those behind it run; of a collecting job all payloads are.
    """
    check_keys_or_all(keys, everything, "--all-failed")
    with looking(target, url) as broker:
        if everything:
            act_on_all(broker, counted(broker, queue, "retries"), "retries", broker.bury_failed, done="Buried")
        else:
            chosen = choose(broker, queue, keys, FAILED)
            act_on(chosen, lambda job: broker.bury_failed(job.queue, [job.key]), done="Buried")


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
    with looking(target, url) as broker:
        if everything:
            totals = counted(broker, queue, "retries")
            if confirm_deletion(totals, "failed", yes):
                act_on_all(broker, totals, "retries", broker.delete_failed, done="Deleted")
            return
        chosen = choose(broker, queue, keys, FAILED)
        if chosen.jobs:
            confirm(f"Delete {chosen.total('failed')} for good?", yes)
        act_on(chosen, lambda job: broker.delete_failed(job.queue, [job.key]), done="Deleted")
