"""Tests that after `app.open()` the first enqueue opens no file and imports nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from laneway import ConfigError, Laneway
from tests.support.opened_app import first_enqueue


@pytest.mark.parametrize("forks", [False, True], ids=["", "in a forked process"])
@pytest.mark.parametrize("exists", [False, True], ids=["a new file", "a file that exists"])
def test_the_first_enqueue_finds_everything_ready(tmp_path: Path, exists: bool, forks: bool) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if exists:
        first_enqueue(url)
    assert first_enqueue(url, forks=forks) == []


def test_nor_does_it_open_anything_in_memory() -> None:
    assert first_enqueue("memory:") == []


def test_a_file_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    app = Laneway(f"sqlite:///{tmp_path}/missing/jobs.db")
    app.task(lambda: None, name="nothing")
    with pytest.raises(ConfigError, match="there is no folder"):
        app.open()
