"""The handler of last resort: formats lines of other libraries that Python would write to stderr."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import textwrap

import pytest

from laneway import logs


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


def run(code: str) -> list[str]:
    """What a program writes to stderr; in one of its own, because pytest has its own way with logging and warnings."""
    head = "import logging, sys, warnings\nfrom laneway import logs\n"
    command = [sys.executable, "-W", "always", "-c", head + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_it_is_undone() -> None:
    ours, warned, raw, *more = run("""
        undo = logs.install_last_resort(logs.handler("json"))
        logging.getLogger("library").warning("one")
        warnings.warn("two")
        undo()
        logging.getLogger("library").warning("three")
        warnings.warn("four")
        assert logs.installed_last_resort() is None
    """)
    assert (json.loads(ours)["logger"], json.loads(ours)["message"]) == ("library", "one")
    assert json.loads(warned)["logger"] == "py.warnings"
    assert json.loads(warned)["message"].endswith("UserWarning: two")
    assert raw == "three"
    assert "UserWarning: four" in more[0]


def test_a_program_that_wants_silence_or_has_its_own_way_keeps_it() -> None:
    assert run("""
        logging.lastResort, logging.raiseExceptions = None, False
        warnings.showwarning = lambda *args, **kwargs: print("own", args[0], file=sys.stderr)
        undo = logs.install_last_resort(logs.handler("json"))
        logging.getLogger("library").warning("one")
        warnings.warn("two")
        undo()
        assert logging.lastResort is None
    """) == ["own two"]


def test_a_warning_for_a_file_goes_there() -> None:
    assert (
        run("""
        import io
        file = io.StringIO()
        logs.install_last_resort(logs.handler("json"))
        warnings.showwarning("two", UserWarning, "a.py", 1, file)
        assert "UserWarning: two" in file.getvalue()
    """)
        == []
    )


def test_what_a_program_sets_up_later_counts() -> None:
    assert run("""
        logs.install_last_resort(logs.handler("json"))
        logging.basicConfig(format="own %(message)s")
        logging.getLogger("library").warning("one")
    """) == ["own one"]


@pytest.mark.parametrize("log_format", logs.FORMATS)
@pytest.mark.parametrize(
    ("message", "args"),
    [("%d and\n%s", ("x",)), ("%(name)s", ("x",)), (Unspeakable(), ()), ("%s", (Unspeakable(),))],
    ids=["few", "names", "message", "argument"],
)
def test_a_record_that_cannot_be_a_line_is_one_all_the_same(log_format, message, args, capsys) -> None:
    stream = io.StringIO()
    handler = logs.handler(log_format, stream)
    handler.handle(logging.LogRecord("library", logging.ERROR, "a.py", 7, message, args, None))
    handler.handle(logging.LogRecord("library", logging.ERROR, "a.py", 8, "fine", (), None))
    first, second = stream.getvalue().splitlines()
    assert "logged at a.py:7, cannot be shown: " in first
    assert "fine" in second
    assert capsys.readouterr().err == ""
