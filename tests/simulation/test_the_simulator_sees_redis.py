"""The simulator detects mistakes in the scripts of the Redis broker.

The test copies the scripts and changes a few words of one of them; a checker reports each mistake.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.brokers.redis import script
from tests.support.servers import RedisServer
from tests.support.simulator import on_redis, simulate

pytestmark = pytest.mark.simulation

#: A file, what stands in it, what stands in it instead, what is found then, and the first seed that finds it.
MISTAKES = {
    "a token is not checked": (
        "parts/turning.lua",
        "if job.worker == worker and job.token == settlement[2] and not seen[job] then",
        "if job.worker and not seen[job] then worker = job.worker",
        "was taken, though",
        11,
    ),
    "what a live worker holds is given back": (
        "give_back.lua",
        "if not is_held[tonumber(found[j + 1])] then",
        "if true then",
        "while call",
        0,
    ),
    "a pause is for show": ("turn.lua", "and not queue.paused then", "then", "was handed out while", 0),
}


@pytest.fixture
def script_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scripts"
    shutil.copytree(script._FOLDER, folder)
    monkeypatch.setattr(script, "_FOLDER", folder)
    return folder


@pytest.fixture(autouse=True)
def scripts_are_read_again() -> Iterator[None]:
    script.load.cache_clear()
    yield
    script.load.cache_clear()


@pytest.mark.parametrize("redis_server", ["valkey"], indirect=True)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_broken_script_is_seen(mistake: str, script_folder: Path, redis_server: RedisServer) -> None:
    name, right, wrong, phrase, first = MISTAKES[mistake]
    text = (script_folder / name).read_text()
    assert text.count(right) == 1, f"{name} is not what it was"
    (script_folder / name).write_text(text.replace(right, wrong))
    for seed in range(first, first + 100):  # more, for when the simulator or the scripts have changed
        report = simulate(seed, on_redis(f"{redis_server.url}?prefix=seed-{seed}"), steps=200)
        if any(phrase in finding for finding in report.findings):
            return
    pytest.fail("Nobody has seen it.")
