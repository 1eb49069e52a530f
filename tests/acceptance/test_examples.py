"""The example of a broker: a program uses it by its URL, through the entry point that its package announces."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "dict_broker"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As if the example's package had been installed: its metadata, and its folder on the path."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    path = os.pathsep.join([str(EXAMPLE), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_program_runs_on_it_by_its_url(environment: dict[str, str], tmp_path: Path) -> None:
    ended = run(environment, tmp_path, str(EXAMPLE / "program.py"))
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "enqueued: delayed queued"
    assert sorted(lines[1:-1]) == ["Hello, world!", "index.html arrives with attempt 2", "index.html fails"]
    assert lines[-1] == "in the end: gone gone"


@pytest.mark.parametrize(
    "command", [["stats", "--url", "dict:"], ["worker", str(EXAMPLE / "program.py"), "--until-empty"]]
)
def test_what_it_lacks_is_refused_in_its_own_words(
    environment: dict[str, str], tmp_path: Path, command: list[str]
) -> None:
    ended = run(environment, tmp_path, "-m", "laneway", *command)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip().endswith(".")


def test_its_scheme_is_named_where_another_one_is_not_known(environment: dict[str, str], tmp_path: Path) -> None:
    ended = run(environment, tmp_path, "-m", "laneway", "stats", "--url", "dickt:")
    assert ended.returncode == 2
    assert "No broker for 'dickt' URLs is installed" in ended.stderr
    assert " dict: " in ended.stderr
