"""Every package says in the docstring of its `__init__` which files it has, one line each."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for tree in ("src/laneway", "tests/support")
    for path in (ROOT / tree).rglob("__init__.py")
)


def contents(folder: Path) -> set[str]:
    """The modules of a folder, and the folders in it that have files of their own."""
    modules = {path.stem for path in folder.glob("*.py") if path.name != "__init__.py"}
    return modules | {f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_door_lists_every_file_once(package: str) -> None:
    folder = ROOT / package
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"^- `([\w/]+)`: \S", docstring, flags=re.MULTILINE)
    assert sorted(listed) == sorted(contents(folder)), f"{package}/__init__.py does not list what is in its folder"


def test_the_loader_of_scripts_lists_their_parts() -> None:
    redis = ROOT / "src" / "laneway" / "brokers" / "redis"
    docstring = ast.get_docstring(ast.parse((redis / "script.py").read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"^- `(\w+)`: \S", docstring, flags=re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in (redis / "scripts" / "parts").glob("*.lua"))


def test_every_folder_with_code_has_a_door() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "src" / "laneway").rglob("*.py")}
    assert folders <= set(PACKAGES)


@pytest.mark.parametrize("tree", ["src", "tests", "bench"])
def test_every_module_says_what_it_owns(tree: str) -> None:
    for path in sorted((ROOT / tree).rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring, f"{path.relative_to(ROOT)} has no docstring"
