"""Loads the Lua scripts from `scripts/`, with their shared parts.

A line `--@include part` is replaced by `scripts/parts/part.lua` where the part is first named; a part is included
once per script. Nothing else is ever inserted into a script: the input of a call comes in KEYS and ARGV.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("scripts")
_INCLUDE = re.compile(r"^--@include[ \t]+(\w+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis gets it."""

    name: str
    text: str
    #: What Redis calls it: known without asking.
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", sha)


@cache
def load(name: str) -> Script:
    """The script `scripts/<name>.lua` with its parts."""
    return read(_FOLDER, name)


def read(folder: Path, name: str) -> Script:
    """A script of any folder."""
    seen: set[str] = set()

    def with_parts(path: Path) -> str:
        return _INCLUDE.sub(part, path.read_text(encoding="utf-8"))

    def part(line: re.Match[str]) -> str:
        if line[1] in seen:
            return ""
        seen.add(line[1])  # before it is read: parts that name each other come to an end
        return with_parts(folder / "parts" / f"{line[1]}.lua").rstrip("\n")

    return Script(name, with_parts(folder / f"{name}.lua"))
