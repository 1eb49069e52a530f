"""Options and arguments that several commands share, and the examples at the end of every `--help`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

target = click.argument("target", metavar="TARGET")
optional_target = click.argument("target", metavar="[TARGET]", required=False)
#: Where the arguments are keys, the target is an option.
app = click.option("--app", "target", metavar="TARGET", help="Use this app's broker.")
url = click.option("--url", metavar="URL", help="The broker; outranks the target's and LANEWAY_URL.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
queue = click.option("-Q", "--queue", metavar="QUEUE", help="Only this queue.")
limit = click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most this many of a queue."
)
after = click.option("--after", metavar="POS", help="Go on behind this place, which the page before named.")
body = click.option("--body", is_flag=True, help="Show its payloads too: they hold the job's arguments.")
keys = click.argument("keys", metavar="KEY...", nargs=-1, required=True)
some_keys = click.argument("keys", metavar="[KEY...]", nargs=-1)
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several of these as one decorator, in the order in which `--help` is to show them."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def listing(*orders: str) -> Callable[[Decorated], Decorated]:
    """What every listing can be told; the first of its orders is the one that it has by itself."""
    return together(
        click.option("--by", "order", type=click.Choice(orders), help=f"Sort by this; by {orders[0]} if not said."),
        click.option("--reverse", is_flag=True, help="The last first."),
        click.option("--from", "start", metavar="VALUE", help="Begin with this key, number or time of what --by says."),
        queue,
        limit,
        after,
        url,
        as_json,
    )


def examples(*lines: str) -> str:
    """The end of a `--help`: commands as one would type them."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class ListByDefault(click.Group):
    """A group whose `list` may be left out: `laneway jobs shop` is `laneway jobs list shop`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)
