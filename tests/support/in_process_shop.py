"""Quick: a shop whose commands run inside this process, for commands that end by themselves.

A new process takes longer than the command. Other tests cover real processes and signals.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import click.testing
import pytest

from laneway.cli import cli
from laneway.urls import URL_VARIABLES
from tests.support.shop import CANARY, Shop


class Quick(Shop):
    """Runs commands here. A target is named by its file, which is read anew each time."""

    def run(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch, chdir(self.folder):
            for name in (*URL_VARIABLES, "NO_COLOR"):
                patch.delenv(name, raising=False)
            for name, value in {"LANEWAY_DEVELOPMENT": "", **environ}.items():  # `dev` sets it
                patch.setenv(name, value)
            patch.setattr(sys, "path", [*sys.path])
            patch.setattr(
                sys, "dont_write_bytecode", True
            )  # what is written twice in a second would be taken for the same
            before = set(sys.modules)
            done = click.testing.CliRunner().invoke(cli, args, prog_name="laneway")
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)):
                    del sys.modules[name]
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        if "--body" not in args:
            assert CANARY not in done.stdout + done.stderr
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def quick(tmp_path: Path) -> Quick:
    return Quick(tmp_path)
