"""The documentation is true: its code runs, and the functions and links that it names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from laneway import Worker
from laneway.config import WorkerOptions

ROOT = Path(__file__).parent.parent.parent


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md", "docs/brokers.md", "docs/testing.md"])
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.setenv("LANEWAY_URL", f"sqlite:///{tmp_path / 'docs.db'}")
    names: dict[str, object] = {"__name__": "docs"}
    code = blocks(page)
    assert code
    for number, block in enumerate(code):
        exec(compile(block, f"{page} block {number + 1}", "exec", dont_inherit=True), names)
    for value in names.values():
        if type(value).__name__ == "Laneway":
            value.close()


def test_the_jobs_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.setenv("LANEWAY_URL", f"sqlite:///{tmp_path / 'docs.db'}")
    names: dict[str, object] = {"__name__": "docs"}
    for block in blocks("README.md"):
        exec(compile(block, "README.md", "exec", dont_inherit=True), names)
    app = names["app"]
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 0
    stats = {each.queue: each for each in app.broker.inspect.stats()}
    # What the mail enqueues goes to the task's own queue, not to the mail's.
    assert (stats["mail"].processed, stats["default"].processed) == (1, 6)
    assert stats["sync_orders"].processed == 1  # both payloads in one run
    assert sum(each.failed for each in stats.values()) == 0
    app.close()


HOPS = re.findall(r"`([\w/]+\.py):([\w.]+)`", (ROOT / "docs" / "internals.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "function"), sorted(set(HOPS)))
def test_every_hop_exists(path, function):
    target: object = importlib.import_module("laneway." + path.removesuffix(".py").replace("/", "."))
    for name in function.split("."):
        target = getattr(target, name)
    assert callable(target)


def test_every_page_that_is_linked_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
