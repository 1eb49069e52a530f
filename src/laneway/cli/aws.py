"""`laneway aws`: what an app needs on AWS, made, or written down as a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from . import UNWELL, options
from .opening import open_target
from .output import clean, show_json
from .target import load_imports

if TYPE_CHECKING:
    from ..brokers.aws.broker import AWSBroker
    from ..brokers.aws.iam import Role
    from ..brokers.aws.needs import Need

#: How a step of the creation is said.
LEVELS = {"made": "made", "missing": "missing", "exists": "ok", "problem": "problem"}


@click.group(
    epilog=options.examples(
        "laneway aws create shop.py --dry-run          what is missing",
        "laneway aws create shop.py                    queues, dead-letter queues and the waiter table",
        "laneway aws iam shop.py                       what a worker must be allowed, as a policy",
        "laneway aws iam shop.py --role producer",
    ),
)
def aws() -> None:
    """Make queues and tables on AWS, and the least IAM policy."""


@aws.command(
    epilog=options.examples(
        "laneway aws create shop.py --dry-run",
        "laneway aws create shop.py --url 'sqs://?region=eu-central-1&prefix=shop-&table=shop-waiter'",
        "laneway aws create shop.py --no-table         no delays of keyed jobs, no cancelling, no pausing",
        "laneway aws create shop.py --json",
    )
)
@options.target
@click.option("--dry-run", is_flag=True, help="Make nothing; say what would be made.")
@click.option("--no-table", is_flag=True, help="Make queues only.")
@options.together(options.url, options.as_json)
@click.pass_context
def create(ctx: click.Context, target: str, dry_run: bool, no_table: bool, url: str | None, as_json: bool) -> None:
    """Make the queues of an app's tasks, their dead-letter queues, and the waiter table.

    Each queue of the app is two on SQS: NAME for plain jobs and NAME.fifo for keyed ones, kept for 14 days. What exists
    is looked at and never changed; what is wrong with it is told, and the command ends with 3. It may be repeated.
    """
    from ..brokers.aws.creating import Creation

    broker, needs = _opened(target, url)
    steps = []
    try:
        for step in Creation(broker, dry_run=dry_run).carry_out(needs, tables=not no_table):
            steps.append(step)
            if not as_json:
                click.echo(f"{LEVELS[step.level]:<8} {clean(step.text)}")
    finally:
        broker.close()
    if as_json:
        show_json({"steps": steps})
    ctx.exit(UNWELL if any(step.level == "problem" for step in steps) else 0)


@aws.command(
    epilog=options.examples(
        "laneway aws iam shop.py                       for workers",
        "laneway aws iam shop.py --role producer       for what only enqueues",
        "laneway aws iam shop.py --role operator       for whoever uses this command line",
        "laneway aws iam shop.py --account 123456789012 --url 'sqs://?region=eu-central-1' > policy.json",
    )
)
@options.target
@click.option(
    "--role",
    type=click.Choice(["worker", "producer", "operator"]),
    default="worker",
    show_default=True,
    help="Whose policy: of those that run jobs, that enqueue them, or that look and act.",
)
@click.option("--account", metavar="ID", help="The account of the queues, if none of them can be asked.")
@options.url
def iam(target: str, role: Role, account: str | None, url: str | None) -> None:
    """Print the least IAM policy for an app, as JSON.

    It allows the calls that Laneway makes, on the queues and tables of the app's tasks, and nothing else. A worker that
    enqueues into queues of other apps needs the producer's policy for those as well.
    """
    from ..brokers.aws.iam import look, place_of, policy

    if account is not None and not (account.isascii() and account.isdigit() and len(account) == 12):
        raise ConfigError(f"An account is 12 digits, not {account!r}.")
    broker, needs = _opened(target, url)
    try:
        found = look(broker.channels, needs)
        place = place_of(broker.settings, found, account)
        show_json(policy(role, needs, broker.channels, broker.tables, place, found))
    finally:
        broker.close()


def _opened(target: str, url: str | None) -> tuple[AWSBroker, dict[str, Need]]:
    """The broker of a target, which must be on AWS, and what its tasks need there."""
    found = open_target(target, url)
    load_imports(found.app)
    broker = found.app.broker
    try:
        from ..brokers.aws.broker import AWSBroker
        from ..brokers.aws.needs import needs_of
    except ModuleNotFoundError:
        raise ConfigError("AWS needs boto3; pip install 'laneway[aws]'.") from None
    if not isinstance(broker, AWSBroker):
        raise ConfigError(
            f"{found.text} keeps its jobs in {found.app.url}, which is not on AWS; give --url sqs://?region=…, or set "
            "LANEWAY_URL."
        )
    needs = needs_of(found.app)
    if not needs:
        raise ConfigError(f"{found.text} has no tasks, and so no queues; declare one with @app.task.")
    return broker, needs
