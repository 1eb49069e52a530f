"""`laneway check`: checks whether an app can run and its broker is healthy. Only `--repair` changes data."""

from __future__ import annotations

from typing import Any

import click

from ...app import Laneway
from ...broker import Finding
from ...errors import BrokerError, ConfigError
from .. import UNWELL, options
from ..findings import examine
from ..output import clean, patience, show_json
from ..target import Target, open_target, unmade_store


@click.command(
    epilog=options.examples(
        "laneway check shop.py",
        "laneway check shop.jobs:app --url sqlite:////var/lib/shop/jobs.db",
        "laneway check shop --json                     exit code 3 if something is wrong",
        "laneway check shop --repair                   mends what the broker can mend; workers may go on",
    )
)
@options.target
@click.option("--repair", is_flag=True, help="Mend what can be mended in the broker; no worker need be stopped.")
@options.together(options.url, options.as_json)
@click.pass_context
def check(ctx: click.Context, target: str, repair: bool, url: str | None, as_json: bool) -> None:
    """Check an app, its tasks and its broker. Ends with 3 if something is wrong.

    With --repair it ends with 0 if all is well afterwards.
    """
    found = open_target(target, url)
    findings = _examine(found)
    document: dict[str, Any] = {"target": found.text, "url": found.app.url, "well": not _problems(findings)}
    document["findings"] = findings
    if repair:
        with patience("Repairing"):
            mended, refused = _repair(found.app)
        left = _problems(_examine(found)) or refused
        document |= {"mended": mended, "left": left, "well": not left}
    if as_json:
        show_json(document)
    else:
        _show(document)
    found.app.close()
    ctx.exit(0 if document["well"] else UNWELL)


def _examine(target: Target) -> list[Finding]:
    with patience("Checking"):
        return list(examine(target.app, target.text))


def _problems(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "problem"]


def _repair(app: Laneway) -> tuple[list[str], list[Finding]]:
    """What was mended, and a problem if the broker could not be asked. Without `health` a broker mends nothing."""
    try:
        broker = app.broker
        if not broker.capabilities.has("health") or unmade_store(broker):
            return [], []
        return broker.health.repair(), []
    except (BrokerError, ConfigError) as error:
        return [], [Finding("problem", "not-repaired", str(error))]


def _show(document: dict[str, Any]) -> None:
    for finding in document["findings"]:
        _line(finding.level, finding.text)
    for text in document.get("mended", ()):
        _line("mended", text)
    for finding in document.get("left", ()):
        _line("left", finding.text)
    if "left" in document and not document["left"]:
        _line("ok", "Nothing is wrong now." if document["mended"] else "Nothing was mended.")


def _line(level: str, text: str) -> None:
    click.echo(f"{level:<8} {clean(text)}")
