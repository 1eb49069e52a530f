"""Runs a fresh process that opens an app, and reports what its first `enqueue` still has to open or import.

Python's audit events name every import, file and connection. The test may look at the server between the two steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

from laneway import Batch, Key, Laneway

_WATCHED = ("import", "open", "socket.connect", "sqlite3.connect")


def first_enqueue(
    url: str,
    *,
    kinds: Sequence[str] = ("plain", "keyed", "collecting"),
    forks: bool = False,
    between: Callable[[], object] = lambda: None,
) -> list[str]:
    """What the first `enqueue` of each kind opened and imported, after `open`. `between` is called between the two.

    `forks`: the process opens the app, forks, and its child opens the app again and enqueues.
    """
    command = [sys.executable, "-W", "ignore:.*fork:DeprecationWarning", "-m", __name__, url, str(int(forks)), *kinds]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opened\n"
        between()
        answer, _ = process.communicate("\n")
        assert process.returncode == 0
    found: list[str] = json.loads(answer)
    return found


def _main(url: str, forks: str, *kinds: str) -> None:
    app = Laneway(url)
    enqueue: list[Callable[[], object]] = []
    if "plain" in kinds:

        @app.task
        def plain(number: int) -> None: ...

        enqueue.append(lambda: plain.enqueue(1))
    if "keyed" in kinds:

        @app.task
        def keyed(key: Annotated[str, Key], number: int) -> None: ...

        enqueue.append(lambda: keyed.enqueue("a", 1))
    if "collecting" in kinds:

        @app.collect(queue="gathered")
        def collecting(batch: Batch[int]) -> None: ...

        enqueue.append(lambda: collecting.enqueue("a", 1))
    app.open()
    if int(forks):
        if child := os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        app.open()
    print("opened", flush=True)
    sys.stdin.readline()
    seen: list[str] | None = []

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event in _WATCHED and seen is not None:
            seen.append(f"{event} {args[:2]}")

    sys.addaudithook(watch)
    for each in enqueue:
        each()
    found, seen = seen, None
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
