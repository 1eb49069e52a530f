"""Fixtures for acceptance tests: a folder to run commands in. Processes left there end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.aws_console import aws_console, aws_server
from tests.support.shop import Shop

__all__ = ["aws_console", "aws_server"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.end()
