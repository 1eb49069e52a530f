"""Compares two checkouts of Laneway: runs one bench of both, again and again, in alternating order.

    python bench/alternate.py OLD NEW [--rounds N] BENCH [ARG …]
    python bench/alternate.py ../before . --rounds 8 drain.py --jobs 40000 --rounds 1

OLD and NEW are folders. Each run is a process of its own, with that checkout's code and its own copy of the bench.
Machines differ from minute to minute, so the order changes with every round. For each number that the bench prints,
and for the CPU time of its process, it shows the median and the range of both.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")

#: The numbers of one run: by the words around them.
Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("bench", help="the name of a script in bench/")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    folders = {"old": options.old.resolve(), "new": options.new.resolve()}
    runs: dict[str, list[Numbers]] = {name: [] for name in folders}
    for number in range(options.rounds):
        order = list(folders) if number % 2 == 0 else list(reversed(folders))
        for name in order:
            runs[name].append(run(folders[name], options.bench, options.args))
    for label in runs["new"][0]:
        sides = {name: [numbers[label] for numbers in found if label in numbers] for name, found in runs.items()}
        if all(sides.values()) and any(len(set(values)) > 1 for values in sides.values()):
            old, new = (statistics.median(sides[name]) for name in ("old", "new"))
            change = f"{(new / old - 1) * 100:+.1f} %" if old else ""
            print(f"{label}\n    old {shown(sides['old'])}    new {shown(sides['new'])}    {change}")


def run(folder: Path, bench: str, args: list[str]) -> Numbers:
    """The numbers that one run of a bench prints, and its CPU time."""
    environ = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    before = os.times()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(folder / "bench" / bench), *args],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    after = os.times()
    numbers: Numbers = {}
    for line in done.stdout.splitlines():
        words = " ".join(_NUMBER.sub("#", line).split())  # columns are as wide as their numbers
        for place, match in enumerate(_NUMBER.finditer(line), 1):
            numbers[f"{words} [number {place}]"] = float(match[0].replace(",", ""))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return numbers | {"CPU seconds": cpu, "seconds": time.monotonic() - began}


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):,.2f} ({min(values):,.2f} to {max(values):,.2f})"


if __name__ == "__main__":
    main()
