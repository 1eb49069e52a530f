"""Loads the Lua scripts from `scripts/`, with their shared parts.

A line `--@include part` is replaced by `scripts/parts/part.lua` where the part is first named; a part is included
once per script. Nothing else is ever inserted into a script: the input of a call comes in KEYS and ARGV.

A key is exclusive because one script moves it from `:jobs` to `:running`, and no script claims from `:running`. While
it is there, its new calls go to `:aside`, and only the worker and the token that claimed it can settle it.

The parts:

- `arguments`: the arguments of a script, and the time
- `base`: batched commands, packing and other helpers
- `records`: encodes and decodes jobs and claims; touches no key
- `layouts`: the shard of a key, and the names of the indices of a shard
- `jobs`: the Redis keys of a queue; loads its jobs, and writes them in one step
- `existing`: ends a script if its queue does not exist
- `payloads`: the payloads of one key: queued, set aside or dead
- `adding`: adds a payload: starts a job, or joins the job of its key
- `simple`: stores ordinary new jobs, which arrive packed in columns
- `delivering`: the outbox entries that were delivered to a queue
- `lanes`: the due jobs of each shard, in order
- `lateness`: how late each shard is, and how many jobs of a queue are not due yet
- `claiming`: claims due jobs: moves each key from `:jobs` to `:running`
- `turning`: checks worker and token of each settlement, and ends the runs
- `sending`: puts what runs send to other queues of a Cluster into the outbox
- `settling`: applies a settlement to its job; gives back claims of dead workers
- `writing`: writes changed jobs back with their indices; new calls of a running key go to `:aside`
- `acting`: the operator's actions on queued and dead jobs
- `views`: a job as operators see it
- `sources`: the jobs of a queue in any order, from any place on
- `sorting`: the index of keys, which exists while an operator lists by key
- `surveying`: finds what is wrong with a job, a dead job or an index
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
