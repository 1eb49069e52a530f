"""Fixtures for SQLite: a new file, a broker on it, and scripts that run in other processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker

Spawn = Callable[..., "subprocess.Popen[str]"]

PRELUDE = """
import os, sys
from laneway.brokers.sqlite import SQLiteBroker
from laneway.testing.conformance.fixtures import ScriptedWorker, job, keys, put
broker = SQLiteBroker(sys.argv[1])
def say(what): print(what, flush=True)
def hear(): return sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def broker(path: Path) -> Iterator[SQLiteBroker]:
    broker = SQLiteBroker(path)
    broker.declare("q", 5)
    yield broker
    broker.close()


@pytest.fixture
def spawn(path: Path) -> Iterator[Spawn]:
    """Run a script, which has `broker`, `say` and `hear`, in a process of its own; all are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", PRELUDE + script, str(path), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()
