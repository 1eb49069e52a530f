"""Measures the memory, descriptors and threads of a process that runs many jobs, with `bench/memory.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

BENCH = Path(__file__).parents[2] / "bench" / "memory.py"


class Sample(msgspec.Struct):
    """What `bench/memory.py` has seen at one moment."""

    jobs: int
    rss_kib: int
    private_kib: int
    descriptors: int
    threads: int


def samples(kind: str, *, jobs: int, warm_up: int, backlog: int = 5_000) -> list[Sample]:
    """Run that many jobs of a kind in one process of its own; the first sample is from after the warm-up."""
    command = [sys.executable, str(BENCH), "--json", "--kind", kind]
    sizes = ["--jobs", str(jobs), "--warm-up", str(warm_up), "--backlog", str(backlog)]
    done = subprocess.run([*command, *sizes], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [msgspec.json.decode(line, type=Sample) for line in done.stdout.splitlines()]
