"""mypy and pyright accept every right call of a task and reject every wrong one, each by itself.

The calls are in the other files of this folder. A wrong call is marked `# wrong: why`; both checkers must report
exactly those lines. A `pyright: ignore` beside a mark is for `make check`; this test removes it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ("functions.py", "classes.py", "collecting.py", "events.py")

Lines = set[tuple[str, int]]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files without anything that would silence a checker."""
    folder = tmp_path_factory.mktemp("bare")
    for name in FILES:
        (folder / name).write_text(re.sub(r"\s+# pyright: ignore\[.*?\]", "", (HERE / name).read_text()))
    return folder


def marked_wrong() -> Lines:
    return {
        (name, number)
        for name in FILES
        for number, line in enumerate((HERE / name).read_text().splitlines(), 1)
        if "# wrong: " in line
    }


def output_of(*command: str, cwd: Path) -> str:
    environ = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr  # 1: there were complaints; more: the checker itself failed
    return done.stdout


def refused_by_mypy(folder: Path) -> Lines:
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    lines = output_of("mypy", *config, "--strict", "--output", "json", *FILES, cwd=folder).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {(Path(each["file"]).name, each["line"]) for each in found if each["severity"] == "error"}


def refused_by_pyright(folder: Path) -> Lines:
    config = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    report = json.loads(output_of("basedpyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder))
    assert report["summary"]["filesAnalyzed"] == len(FILES)
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


@pytest.mark.typing
@pytest.mark.parametrize("refused_by", [refused_by_mypy, refused_by_pyright])
def test_exactly_the_wrong_calls_are_refused(refused_by, bare):
    assert refused_by(bare) == marked_wrong()


@pytest.mark.typing
def test_there_are_wrong_calls_of_every_kind_of_task():
    wrong = [line for name in FILES for line in (HERE / name).read_text().splitlines() if "# wrong: " in line]
    for kind in (
        "resize",
        "fetch",
        "tidy",
        "SendMail",
        "NoTask",
        "context.enqueue",
        "using",
        "charge",
        "sync",
        "own",
        "Batch",
        "on_order",
        "publish",
        "listener",
    ):
        assert any(kind in line for line in wrong), kind
