"""Which files a reloader watches, and what has changed among them.

It looks at the files' times, sizes and inodes and reads none of them; it imports nothing of the user's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from ..errors import ConfigError

#: Folders with other people's code, or with what is made from ours. Hidden ones are skipped too.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

#: What tells that a file is not the one that it was; also when it was saved by renaming another one to its name.
Mark = tuple[int, int, int]
Files = dict[str, Mark]


def places(target: str, more: Iterable[str]) -> list[Path]:
    """What to watch for a target: the folder one is in, the target's own, and what was named besides."""
    found = [Path.cwd()]
    own = _folder_of(target.partition(":")[0] if not target.endswith(".py") else target)
    if own is not None and not SKIPPED & set(own.parts):
        found.append(own)
    for each in more:
        if not Path(each).exists():
            raise ConfigError(f"There is no file or folder {each} to watch.")
        found.append(Path(each).resolve())
    return list(dict.fromkeys(found))


def _folder_of(place: str) -> Path | None:
    """The folder that a target's code is imported from; None if that is not to be found without importing it."""
    if place.endswith(".py") or os.sep in place:
        folder = Path(place).resolve().parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        return folder
    name = place.partition(".")[0]
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *_given_path()]) if name.isidentifier() else None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.origin else None


def _given_path() -> list[str]:
    """The folders that somebody has put on Python's path, without those of Python itself."""
    own = (sys.prefix, sys.base_prefix)
    return [folder for folder in sys.path if folder and not folder.startswith(own)]


def snapshot(roots: Iterable[Path]) -> Files:
    """Every watched file as it is now: Python files of folders, and files that were named, whatever they are."""
    files: Files = {}
    seen: set[str] = set()
    for root in roots:
        if root.is_dir():
            _look_into(str(root), files, seen)
        else:
            mark = _mark(root)
            if mark is not None:
                files[str(root)] = mark
    return files


def _look_into(folder: str, files: Files, seen: set[str]) -> None:
    """Add what is in a folder and below it. Links to folders are not followed: they may lead round in circles."""
    left = [folder]
    while left:
        folder = left.pop()
        if folder in seen:
            continue
        seen.add(folder)
        found: Files = {}
        below: list[str] = []
        for entry in _entries(folder):
            name = entry.name
            if name == "pyvenv.cfg":
                break  # a virtual environment
            if name.endswith(".py"):
                mark = _mark(entry)
                if mark is not None:
                    found[entry.path] = mark
            elif name[0] != "." and name not in SKIPPED and entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
        else:
            files.update(found)
            left += below


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # gone meanwhile, or not ours to read


def _mark(file: os.DirEntry[str] | Path) -> Mark | None:
    try:
        found = file.stat()
    except OSError:
        return None  # gone meanwhile, or a link to nowhere
    return found.st_mtime_ns, found.st_size, found.st_ino


def changes(before: Files, now: Files) -> list[str]:
    """The files that are not as they were, that are new or that are gone."""
    if before == now:
        return []
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
