"""The reloader: which files it watches, and what it counts as a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from laneway.cli.reload import changes, places, snapshot
from laneway.errors import ConfigError


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def watched(folder: Path) -> set[str]:
    return {str(Path(path).relative_to(folder)) for path in snapshot([folder])}


def test_only_python_files_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path, "shop.py", "parts/deep/part.py", "notes.txt", "laneway.db")
    write(tmp_path, ".git/hook.py", "__pycache__/shop.py", "node_modules/a/b.py", "lib/site-packages/c.py")
    write(tmp_path, "env/pyvenv.cfg", "env/a.py", "env/lib/python3/b.py")
    assert watched(tmp_path) == {"shop.py", "parts/deep/part.py"}


def test_links_that_lead_nowhere_or_in_circles(tmp_path: Path) -> None:
    write(tmp_path, "parts/part.py")
    (tmp_path / "parts" / "round").symlink_to(tmp_path)
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "no.py")
    (tmp_path / "linked.py").symlink_to(tmp_path / "parts" / "part.py")
    assert watched(tmp_path) == {"parts/part.py", "linked.py"}


def test_changed_new_and_gone(tmp_path: Path) -> None:
    write(tmp_path, "same.py", "saved.py", "renamed.py", "gone.py")
    before = snapshot([tmp_path])
    assert changes(before, snapshot([tmp_path])) == []
    (tmp_path / "saved.py").write_text("more")
    times = (tmp_path / "renamed.py").stat()
    write(tmp_path, "renamed.py~", "new.py")
    (tmp_path / "renamed.py~").replace(tmp_path / "renamed.py")
    os.utime(tmp_path / "renamed.py", ns=(times.st_atime_ns, times.st_mtime_ns))  # the same time and size
    (tmp_path / "gone.py").unlink()
    found = [Path(path).name for path in changes(before, snapshot([tmp_path]))]
    assert found == ["gone.py", "new.py", "renamed.py", "saved.py"]


def test_file_that_is_named_is_watched_whatever_it_is(tmp_path: Path) -> None:
    write(tmp_path, "settings.toml", "other.toml")
    assert list(snapshot([tmp_path / "settings.toml"])) == [str(tmp_path / "settings.toml")]


def test_places_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    write(here, "shop.py")
    write(tmp_path, "src/pack/__init__.py", "src/pack/sub/__init__.py", "src/pack/sub/jobs.py", "else/jobs.py")
    write(tmp_path, "lib/site-packages/installed/__init__.py")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    monkeypatch.syspath_prepend(str(tmp_path / "lib" / "site-packages"))
    assert places("shop", ()) == [here]
    assert places("shop.py:app", ()) == [here]
    assert places("../else/jobs.py", ()) == [here, tmp_path / "else"]
    assert places("../src/pack/sub/jobs.py:app", ()) == [here, tmp_path / "src"]
    assert places("pack.sub.jobs:app", ()) == [here, tmp_path / "src"]
    for target in ("installed", "json", "nothing", "not a module", ""):
        assert places(target, ()) == [here]
    assert places("shop", ["shop.py", "../else"]) == [here, here / "shop.py", tmp_path / "else"]
    with pytest.raises(ConfigError, match=r"There is no file or folder \.\./nowhere to watch\."):
        places("shop", ["../nowhere"])
