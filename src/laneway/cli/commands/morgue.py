"""`laneway morgue`: lists and shows the jobs that failed for good; revives and deletes them."""

from __future__ import annotations

from typing import Any

import click

from .. import options
from ..act import DEAD, act_on, act_on_all, check_keys_or_all, choose, confirm, confirm_deletion, counted
from ..listing import list_jobs, show_jobs
from ..target import open_without_app


@click.group(
    cls=options.ListByDefault,
    epilog=options.examples(
        "laneway morgue                                who is there, and why",
        "laneway morgue shop.py --queue mail --json",
        "laneway morgue show 019a8b…                   the whole error",
        "laneway morgue revive 019a8b…",
        "laneway morgue revive --all --queue mail",
        "laneway morgue delete --all --yes",
    ),
)
def morgue() -> None:
    """List, show, revive and delete dead jobs.

    Dead are those that failed and have used up their retries.

    `list` may be left out: its options follow `laneway morgue` directly.
    """


@morgue.command(
    "list",
    epilog=options.examples(
        "laneway morgue list",
        "laneway morgue list --queue mail -n 10",
        "laneway morgue list --reverse                 the last burial first",
        "laneway morgue list --by key --from order-17",
    ),
)
@options.optional_target
@options.listing("updated_at", "key")
def list_(target: str | None, **given: Any) -> None:
    """List dead jobs, by the time of their burial unless told otherwise."""
    list_jobs(["morgue"], "dead", target=target, **given)


@morgue.command(epilog=options.examples("laneway morgue show 019a8b…", "laneway morgue show 019a8b… --body"))
@click.argument("key")
@options.together(options.body, options.queue, options.app, options.url, options.as_json)
def show(key: str, body: bool, queue: str | None, target: str | None, url: str | None, as_json: bool) -> None:
    """Show a dead job in full, with its whole error."""
    show_jobs(key, dead_only=True, target=target, url=url, queue=queue, body=body, as_json=as_json)


@morgue.command(epilog=options.examples("laneway morgue revive 019a8b…", "laneway morgue revive --all --queue mail"))
@options.some_keys
@click.option("--all", "everything", is_flag=True, help="All that are dead.")
@options.together(options.queue, options.app, options.url)
def revive(keys: tuple[str, ...], everything: bool, queue: str | None, target: str | None, url: str | None) -> None:
    """Put dead jobs back into their queue, due now.

    They have all their retries again, and merge with what their key has in the queue by now.
    """
    check_keys_or_all(keys, everything)
    with open_without_app(target, url) as broker:
        if everything:
            act_on_all(broker, counted(broker, queue, "dead"), "dead", broker.operate.revive, done="Revived")
        else:
            chosen = choose(broker, queue, keys, DEAD)
            act_on(chosen, lambda job: broker.operate.revive(job.queue, [job.key]), done="Revived")


@morgue.command(epilog=options.examples("laneway morgue delete 019a8b…", "laneway morgue delete --all --yes"))
@options.some_keys
@click.option("--all", "everything", is_flag=True, help="All that are dead.")
@options.together(options.yes, options.queue, options.app, options.url)
def delete(
    keys: tuple[str, ...], everything: bool, yes: bool, queue: str | None, target: str | None, url: str | None
) -> None:
    """Delete dead jobs for good. Asks first."""
    check_keys_or_all(keys, everything)
    with open_without_app(target, url) as broker:
        if everything:
            totals = counted(broker, queue, "dead")
            if confirm_deletion(totals, "dead", yes):
                act_on_all(broker, totals, "dead", broker.operate.delete_dead, done="Deleted")
            return
        chosen = choose(broker, queue, keys, DEAD)
        if chosen.jobs:
            confirm(f"Delete {chosen.total('dead')} for good?", yes)
        act_on(chosen, lambda job: broker.operate.delete_dead(job.queue, [job.key]), done="Deleted")
