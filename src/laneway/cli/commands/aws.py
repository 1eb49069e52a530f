"""`laneway aws`: creates the resources that an app needs on AWS, or prints the smallest IAM policy for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ...config import name_problem
from ...errors import ConfigError
from .. import UNWELL, options
from ..output import clean, show_json
from ..target import load_imports, open_target

if TYPE_CHECKING:
    from ...app import Laneway
    from ...brokers.aws.admin.needs import QueueRequirement
    from ...brokers.aws.admin.resources.resource import Role
    from ...brokers.aws.broker import AWSBroker

#: How a step of the creation is said.
LEVELS = {"made": "made", "missing": "missing", "exists": "ok", "problem": "problem"}


@click.group(
    epilog=options.examples(
        "laneway aws create shop.py --dry-run          what is missing",
        "laneway aws create shop.py                    queues, dead-letter queues, the waiter table, topics",
        "laneway aws iam shop.py                       what a worker must be allowed, as a policy",
        "laneway aws iam shop.py --role producer",
    ),
)
def aws() -> None:
    """Make queues, topics and tables on AWS, and its IAM policy."""


def _publishes(command: Callable[..., None]) -> Callable[..., None]:
    """The events that an app publishes: its code does not say."""
    for option in (
        click.option(
            "--publishes-generic", "generic", metavar="EVENT", multiple=True, help="The same, with generic=True."
        ),
        click.option(
            "--publishes", metavar="EVENT", multiple=True, help="An event that the app publishes; repeatable."
        ),
    ):
        command = option(command)
    return command


@aws.command(
    epilog=options.examples(
        "laneway aws create shop.py --dry-run",
        "laneway aws create shop.py --url 'sqs://?region=eu-central-1&table=shop-waiter'",
        "laneway aws create shop.py --no-table         no delays of keyed jobs, no cancelling, no pausing",
        "laneway aws create shop.py --publishes sold --publishes returned",
        "laneway aws create shop.py --json",
    )
)
@options.target
@click.option("--dry-run", is_flag=True, help="Make nothing; say what would be made.")
@click.option("--no-table", is_flag=True, help="Make no waiter table.")
@_publishes
@options.together(options.url, options.as_json)
@click.pass_context
def create(
    ctx: click.Context,
    target: str,
    dry_run: bool,
    no_table: bool,
    publishes: tuple[str, ...],
    generic: tuple[str, ...],
    url: str | None,
    as_json: bool,
) -> None:
    """Make the queues of an app's tasks and listeners, dead-letter queues, the waiter table, and what events need.

    Each queue of the app's tasks is two on SQS: NAME for plain jobs and NAME.fifo for keyed ones, kept for 14 days. A
    listener has one, its topic, a subscription to that, and a policy of its queue that lets the topic send. What exists
    is looked at and never changed, but for a policy that does not let the topic send, which gets one statement more;
    what is wrong is told, and the command ends with 3. It may be repeated.
    """
    from ...brokers.aws.admin.create import create_resources
    from ...brokers.aws.admin.resources.resource import Creation

    broker, app = _opened(target, url)
    topics = _topics(app, publishes, generic)
    needs = _needs(target, app, topics)
    steps = []
    try:
        creation = Creation(dry_run=dry_run)
        for step in create_resources(broker.account, needs, creation, tables=not no_table, publishes=topics):
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
        "laneway aws iam shop.py --publishes sold      it may publish that event; '*': all of its own",
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
@click.option("--account", metavar="ID", help="The account of the queues and topics, if none can be asked.")
@_publishes
@options.url
def iam(
    target: str,
    role: Role,
    account: str | None,
    publishes: tuple[str, ...],
    generic: tuple[str, ...],
    url: str | None,
) -> None:
    """Print the least IAM policy for an app, as JSON.

    It allows the calls that Laneway makes, on the queues, topics and tables of the app's tasks and listeners and of
    what it is said to publish, and nothing else. A worker that enqueues into queues of other apps needs the producer's
    policy for those as well. It sees whether its listeners are subscribed; who subscribes them is an operator.
    """
    from ...brokers.aws.admin.iam import locate, policy

    if account is not None and not (account.isascii() and account.isdigit() and len(account) == 12):
        raise ConfigError(f"An account is 12 digits, not {account!r}.")
    broker, app = _opened(target, url)
    topics = _topics(app, publishes, generic, patterns=True)
    needs = _needs(target, app, topics)
    try:
        show_json(policy(role, broker.account, needs, locate(broker.account, needs, account), topics))
    finally:
        broker.close()


def _opened(target: str, url: str | None) -> tuple[AWSBroker, Laneway]:
    """The broker of a target, which must be on AWS, and its app."""
    found = open_target(target, url)
    load_imports(found.app)
    broker = found.app.broker
    try:
        from ...brokers.aws.broker import AWSBroker
    except ModuleNotFoundError:
        raise ConfigError("AWS needs boto3; pip install 'laneway[aws]'.") from None
    if not isinstance(broker, AWSBroker):
        raise ConfigError(
            f"{found.text} keeps its jobs in {found.app.url}, which is not on AWS; give --url sqs://?region=…, or set "
            "LANEWAY_URL."
        )
    return broker, found.app


def _needs(target: str, app: Laneway, topics: list[str]) -> dict[str, QueueRequirement]:
    """What an app's tasks and listeners need on AWS. One that only publishes needs nothing but topics."""
    from ...brokers.aws.admin.needs import needs_of

    needs = needs_of(app)
    if not needs and not topics:
        raise ConfigError(
            f"{target} has no tasks and no listeners, and so no queues; declare one with @app.task, or name what it "
            "publishes with --publishes EVENT."
        )
    return needs


def _topics(app: Laneway, publishes: tuple[str, ...], generic: tuple[str, ...], *, patterns: bool = False) -> list[str]:
    """The topics of the events that an app publishes; with `patterns`, * stands for all of them."""
    for event in (*publishes, *generic):
        problem = None if patterns and event == "*" else name_problem("the event", event)
        if problem:
            raise ConfigError(problem)
    if publishes and app.name is None:
        raise ConfigError(
            "What an app publishes has its name in the topic, and this one has none; give it one with Laneway(name=…), "
            "or name events that many apps publish with --publishes-generic."
        )
    found = [app.names.topic(event, app.name) for event in publishes]
    found += [app.names.topic(event, None) for event in generic]
    return list(dict.fromkeys(found))
