"""dev: real processes restart when real files change, and none is left behind."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.worker.process.tree import descendants
from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance

PATIENCE_S = 60.0
SERVES = "Ctrl-C stops it."
AGAIN = "; starting again."

SAYS = """
import sys
from laneway import Laneway

app = Laneway()

@app.task
def speak() -> None:
    print("{word}", file=sys.stderr, flush=True)
"""
WAITS = """
import sys, time
from pathlib import Path
from laneway import Laneway

app = Laneway()

@app.task
def hold() -> None:
    print("begun", file=sys.stderr, flush=True)
    while not Path("go").exists():
        time.sleep(0.01)
    print("ended", file=sys.stderr, flush=True)
"""


class Dev:
    """`laneway dev` at work, and the lines that it says."""

    def __init__(self, shop: Shop, *args: str) -> None:
        self.shop = shop
        self.process = shop.start("dev", *args, stdin=subprocess.DEVNULL)
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, text: str) -> str:
        """Wait for the next line that holds a text."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"{text!r} was not said, but: {self.said}"
            self.said.append(line)
            if text in line:
                return line

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end of the reloader and of everything that could still say something."""
        code = self.process.wait(PATIENCE_S)
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            self.said.append(line)
        return code

    def close(self) -> None:
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def dev(shop: Shop) -> Iterator[Dev]:
    shop.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    shop.write("talk.py", SAYS.format(word="first"))
    made = Dev(shop, "talk")
    try:
        yield made
    finally:
        made.close()


def enqueue(shop: Shop, target: str, task: str) -> None:
    code = f"import {target}; {target}.{task}.enqueue(); {target}.app.close()"
    subprocess.run([shop.command()[0], "-B", "-c", code], cwd=shop.folder, env=shop.environ, check=True, timeout=60)


def test_changed_code_is_what_runs(shop: Shop, dev: Dev) -> None:
    dev.until(SERVES)
    enqueue(shop, "talk", "speak")
    dev.until("first")
    shop.write("talk.py", SAYS.format(word="other"))
    assert dev.until(AGAIN) == "talk.py changed; starting again."
    dev.until(SERVES)
    enqueue(shop, "talk", "speak")
    dev.until("other")


def test_equal_size_and_second_are_another_file_all_the_same(shop: Shop, dev: Dev) -> None:
    """Python itself would take what it compiled of the first for the second's."""
    file = shop.folder / "talk.py"
    dev.until(SERVES)
    assert list(shop.folder.glob("__pycache__/talk.*.pyc"))
    second = int(file.stat().st_mtime)
    file.write_text(SAYS.format(word="later"))
    os.utime(file, (second, second))
    dev.until(AGAIN)
    dev.until(SERVES)
    enqueue(shop, "talk", "speak")
    dev.until("later")


def test_code_that_cannot_be_imported_is_named_and_waited_for(shop: Shop, dev: Dev) -> None:
    dev.until(SERVES)
    shop.write("talk.py", "def broken(:\n")
    dev.until(AGAIN)
    assert "could not be imported: SyntaxError" in dev.until("talk.py:1")
    assert dev.until("it starts again") == "The worker ended with 2; it starts again when a file changes."
    assert dev.process.poll() is None
    shop.write("talk.py", SAYS.format(word="mended"))
    dev.until(SERVES)
    enqueue(shop, "talk", "speak")
    dev.until("mended")


def test_interrupt_while_waiting_for_a_change_ends_it(shop: Shop, dev: Dev) -> None:
    dev.until(SERVES)
    shop.write("talk.py", "1 / 0\n")
    dev.until("it starts again when a file changes")
    dev.tell(signal.SIGINT)
    assert dev.end() == 0


def test_first_start_that_fails_is_the_end(shop: Shop) -> None:
    shop.write("broken.py", "1 / 0\n")
    assert "ZeroDivisionError" in shop.wrong("dev", "broken")
    assert shop.wrong("dev", "nothing").startswith("There is no module 'nothing'")
    assert shop.wrong("dev", "shop", "--watch", "no/where") == "There is no file or folder no/where to watch."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_ends_once_and_leaves_nothing(dev: Dev, number: int) -> None:
    dev.until(SERVES)
    dev.until("jobs at once")
    below = descendants(dev.process.pid)
    assert below
    dev.tell(number)
    assert dev.end() == 0
    assert sum("stopped (" in line for line in dev.said) == 1
    assert not any("Traceback" in line or "Aborted" in line for line in dev.said)
    wait_until_gone(below)


def test_stopped_while_it_begins(dev: Dev) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not descendants(dev.process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    dev.tell(signal.SIGINT)
    assert dev.end() == 0


def test_second_interrupt_gives_up(shop: Shop) -> None:
    shop.write("waits.py", WAITS)
    dev = Dev(shop, "waits", "--shutdown-timeout", "600")
    try:
        dev.until(SERVES)
        enqueue(shop, "waits", "hold")
        dev.until("begun")
        dev.tell(signal.SIGINT)
        dev.until("stopping; waiting for hold")
        dev.tell(signal.SIGINT)
        assert dev.end() == 1
        assert any("unfinished" in line for line in dev.said)
    finally:
        dev.close()


def test_what_runs_is_finished_before_it_starts_again(shop: Shop) -> None:
    shop.write("waits.py", WAITS)
    dev = Dev(shop, "waits", "--shutdown-timeout", "600")
    try:
        dev.until(SERVES)
        enqueue(shop, "waits", "hold")
        dev.until("begun")
        shop.write("waits.py", WAITS + "# more\n")
        dev.until("stopping; waiting for hold")
        shop.write("go", "")
        dev.until("ended")
        dev.until(SERVES)
        dev.tell(signal.SIGINT)
        assert dev.end() == 0
        assert sum("begun" in line for line in dev.said) == 1
    finally:
        dev.close()


def test_many_changes_at_once_are_one_start(shop: Shop, dev: Dev) -> None:
    dev.until(SERVES)
    for number in range(20):
        shop.write(f"parts/part{number}.py", "")
    for _ in range(3):  # as editors save: another file, given the name
        shop.write("talk.py~", SAYS.format(word="other")).replace(shop.folder / "talk.py")
    assert dev.until(AGAIN) == "parts/part0.py and 20 more changed; starting again."
    dev.until(SERVES)
    (shop.folder / "parts" / "part7.py").unlink()
    assert dev.until(AGAIN) == "parts/part7.py is gone; starting again."
    dev.until(SERVES)
    dev.tell(signal.SIGINT)
    assert dev.end() == 0
    assert sum(AGAIN in line for line in dev.said) == 2


def test_what_else_is_to_be_watched(shop: Shop) -> None:
    settings = shop.write("settings.toml", "colour = 1\n")
    library = shop.folder.parent / f"{shop.folder.name}-library"
    library.mkdir()
    dev = Dev(shop, "shop", "--watch", "settings.toml", "--watch", str(library))
    try:
        dev.until(SERVES)
        settings.write_text("colour = 2\n")
        assert dev.until(AGAIN) == "settings.toml changed; starting again."
        dev.until(SERVES)
        (library / "more.py").write_text("")
        assert str(library / "more.py") in dev.until(AGAIN)
    finally:
        dev.close()


def test_nothing_is_left_when_the_reloader_is_killed(dev: Dev) -> None:
    dev.until(SERVES)
    dev.until("jobs at once")
    below = descendants(dev.process.pid)
    assert below
    dev.process.kill()
    dev.end()
    wait_until_gone(below)


def test_without_reload_there_is_one_process_that_ignores_changes(shop: Shop) -> None:
    dev = Dev(shop, "shop", "--no-reload")
    try:
        assert dev.until("Ctrl-C") == "Ctrl-C stops it."
        dev.until("jobs at once")
        shop.write("shop.py", "1 / 0\n")
        dev.tell(signal.SIGINT)
        assert dev.end() == 0
        assert not any(AGAIN in line for line in dev.said)
    finally:
        dev.close()


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
