"""Helpers for tests of isolated processes: the app on its own database, and ways to wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laneway import Laneway
from tests.integration.worker.isolated_tasks import JOURNAL, app
from tests.support.worker_fixtures import PATIENCE_S


@contextmanager
def isolated_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laneway]:
    monkeypatch.setenv(JOURNAL, str(tmp_path / "journal"))
    app.use(f"sqlite:///{tmp_path / 'jobs.db'}")
    try:
        yield app
    finally:
        app.close()


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


def is_there(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it is read
        return False


def children() -> set[int]:
    """The processes that this one has started and that have not ended, but for servers that other tests share."""
    own = Path(f"/proc/{os.getpid()}/task")
    found = " ".join(_read(task / "children") for task in own.iterdir())
    return {int(pid) for pid in found.split() if is_there(int(pid)) and not _serves(int(pid))}


def _serves(pid: int) -> bool:
    process = Path(f"/proc/{pid}")
    return _read(process / "comm").endswith("-server\n") or "tests.support.aws." in _read(process / "cmdline")


def _read(path: Path) -> str:
    """What is there; nothing if the thread or process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
