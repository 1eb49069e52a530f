"""Console: runs commands in this process, with queues on a fake AWS server that is emptied for each test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.cli import cli
from laneway.urls import URL_VARIABLES, Url
from tests.support.aws.endpoints import ENVIRONMENT
from tests.support.aws.servers import FakeServer
from tests.support.shop import CANARY


class Console:
    """Somebody at a terminal, in a folder with an app."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        self.server = server
        self.target = str(folder / "aws_shop.py")
        self.url = server.url(table="waiter", wait=0)

    def write(self, app: str) -> None:
        """Have the app be this one. A module is imported once by a name."""
        Path(self.target).write_text(app)

    def run(self, *args: str, url: str | None = None) -> Result:
        done = CliRunner().invoke(cli, [*args, "--url", url or self.url])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "--body" in args or CANARY not in done.output
        return done

    def ok(self, *args: str, **options: Any) -> str:
        done = self.run(*args, **options)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *args: str, **options: Any) -> Any:
        return json.loads(self.ok(*args, "--json", **options))

    def wrong(self, *args: str, code: int = 2, **options: Any) -> str:
        done = self.run(*args, **options)
        assert (done.exit_code, done.stdout) == (code, ""), done.output
        sentence = done.stderr.strip()
        assert "\n" not in sentence
        assert sentence.endswith(".")
        return sentence

    def broker(self) -> AWSBroker:
        settings = AWSBroker.from_url(Url.parse(self.url)).account.settings
        broker = AWSBroker(settings, inline=True)
        broker.declare("mail", 1)
        return broker


@pytest.fixture(scope="module")
def aws_server() -> Iterator[FakeServer]:
    server = FakeServer.start()
    yield server
    server.end()


@pytest.fixture
def aws_console(aws_server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """One that has written no app yet."""
    for name in [name for name in os.environ if name.startswith("AWS_")] + list(URL_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # Each command is a process of its own elsewhere; making boto3's clients takes longer than all else.
    given = aws_server.clients
    monkeypatch.setattr("laneway.brokers.aws.account.Clients", lambda settings: Clients.of(settings, **given))
    monkeypatch.syspath_prepend(str(tmp_path))
    aws_server.reset()
    return Console(aws_server, tmp_path)
