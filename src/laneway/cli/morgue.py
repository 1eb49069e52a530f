"""`laneway morgue`: the jobs that failed for good, and what can be done about them."""

from __future__ import annotations

import click

from ..broker import Broker
from . import options
from .acting import act_on_all, act_on_keys, check_keys_or_all, confirm
from .looking import list_jobs, show_jobs
from .opening import known_queues, looking
from .output import count


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


@morgue.command("list", epilog=options.examples("laneway morgue list", "laneway morgue list --queue mail -n 10"))
@options.optional_target
@options.together(options.queue, options.limit, options.after, options.url, options.as_json)
def list_(target: str | None, queue: str | None, limit: int, after: str | None, url: str | None, as_json: bool) -> None:
    """List dead jobs, by the time of their burial."""
    list_jobs("morgue", "dead", target=target, url=url, queue=queue, limit=limit, after=after, as_json=as_json)


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
    """Put dead jobs back into their queue, due now, with all their retries."""
    check_keys_or_all(keys, everything)
    with looking(target, url) as broker:
        if everything:
            act_on_all(broker, _dead(broker, queue), "dead", act=broker.revive, done="Revived")
        else:
            act_on_keys(
                broker,
                queue,
                keys,
                which="in the morgue",
                act=lambda job: bool(broker.revive(job.queue, [job.key])),
                done="Revived",
            )


@morgue.command(epilog=options.examples("laneway morgue delete 019a8b…", "laneway morgue delete --all --yes"))
@options.some_keys
@click.option("--all", "everything", is_flag=True, help="All that are dead.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.together(options.queue, options.app, options.url)
def delete(
    keys: tuple[str, ...], everything: bool, yes: bool, queue: str | None, target: str | None, url: str | None
) -> None:
    """Delete dead jobs for good. Asks first."""
    check_keys_or_all(keys, everything)
    with looking(target, url) as broker:
        if everything:
            totals = _dead(broker, queue)
            if not sum(totals.values()):
                click.echo("There are no dead jobs.")
                return
            places = ", ".join(name for name, dead in totals.items() if dead)
            confirm(f"Delete {count(sum(totals.values()), 'dead job')} of {places} for good?", yes)
            act_on_all(broker, totals, "dead", act=broker.delete_dead, done="Deleted")
        else:
            known_queues(broker, queue)
            confirm(f"Delete {count(len(set(keys)), 'dead job')} for good?", yes)
            act_on_keys(
                broker,
                queue,
                keys,
                which="in the morgue",
                act=lambda job: bool(broker.delete_dead(job.queue, [job.key])),
                done="Deleted",
            )


def _dead(broker: Broker, queue: str | None) -> dict[str, int]:
    wanted = known_queues(broker, queue)
    return {stats.queue: stats.dead for stats in broker.stats() if stats.queue in wanted}
