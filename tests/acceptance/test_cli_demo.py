"""demo, and the command line as a whole: help, version, and the cost of importing it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import laneway
from laneway.cli import COMMANDS, cli
from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance


def test_demo_shows_jobs_running_and_sums_up(shop: Shop) -> None:
    done = shop.run("demo", "--seconds", "2")
    assert done.returncode == 0
    assert done.stderr == "", "nothing is written across the table"
    text = done.stdout
    assert "\x1b" not in text
    assert "after 1 s" in text
    for task in ("checkout", "thumbnail", "charge", "Receipt", "exchange_rate", "reminder", "daily_report"):
        assert task in text
    assert "were told" in text.splitlines()[-2]
    assert "each in the right order." in text.splitlines()[-2]
    assert "were packed once each" in text.splitlines()[-2]
    for task in ("tell_customer", "write_stock"):
        assert any(line.startswith(task) and int(line.split()[3]) > 0 for line in text.splitlines())
    assert "jobs done" in text.splitlines()[-1]
    assert not text.splitlines()[-1].startswith("0 jobs")


def test_demo_leaves_nothing_behind(shop: Shop, tmp_path: Path) -> None:
    shop.ok("demo", "--seconds", "0.1", TMPDIR=str(tmp_path))
    assert not list(tmp_path.glob("laneway-demo-*"))


def test_demo_ends_with_ctrl_c_and_0(shop: Shop) -> None:
    process = shop.start("demo", stderr=subprocess.STDOUT)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("after"):
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "still waiting." in rest


def test_demo_is_live_on_a_terminal(shop: Shop) -> None:
    ours, theirs = pty.openpty()
    environ = {**shop.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(shop.command("demo", "--seconds", "1"), env=environ, stdin=theirs, stdout=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert process.wait(timeout=30) == 0
    assert b"\x1b[1A" in said, "it draws over itself"
    assert b"still waiting." in said


def test_version(shop: Shop) -> None:
    assert shop.ok("--version") == f"laneway {laneway.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    for args in ([command, "--help"], *([command, name, "--help"] for name in subcommands(command))):
        result = CliRunner().invoke(cli, args)
        assert result.exit_code == 0
        assert "  Examples:\n    laneway " in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_summary_of_every_command_fits_into_the_help(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert not found.get_short_help_str(60).endswith("...")


def test_unknown_command_is_a_usage_error(shop: Shop) -> None:
    done = shop.run("wrok")
    assert done.returncode == 2
    assert "No such command 'wrok'" in done.stderr


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import laneway", ("click", "rich", "asyncio")),
        ("import laneway.cli", ("rich", "asyncio")),
        (
            "import laneway.cli.commands.jobs, laneway.cli.commands.morgue, laneway.cli.commands.worker",
            ("rich", "asyncio"),
        ),
    ],
)
def test_import_brings_only_what_is_needed(code: str, absent: tuple[str, ...]) -> None:
    check = f"{code}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def subcommands(command: str) -> list[str]:
    found = cli.get_command(click.Context(cli), command)
    return list(found.commands) if isinstance(found, click.Group) else []
