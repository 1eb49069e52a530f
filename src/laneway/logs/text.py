"""Text from elsewhere, made fit for a log: errors repeat whatever a remote server said."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import TracebackType

from ..errors import text_of

#: A traceback is cut to its end beyond this.
LONGEST = 16_000

_OURS = str(Path(__file__).parent.parent) + os.sep


def one_line(text: str) -> str:
    """Text without line breaks and what would move a terminal's cursor: those are shown as escapes."""
    return text if text.isprintable() else "".join(map(_visible, text))


def harmless(text: str) -> str:
    """The same, but several lines stay; those behind the first are indented, so that none passes for a line of ours."""
    if text.isprintable():
        return text
    text = "".join(each if each in "\n\t" else _visible(each) for each in text)
    return text.rstrip("\n").replace("\n", "\n    ")


def traceback_text(error: BaseException) -> str:
    """An exception with where it came from, as Python prints it: code, and never any values."""
    try:
        lines = traceback.format_exception(type(error), error, without_ours(error))
    except BaseException:  # Python asks objects for their names, to guess which one was meant
        lines = [*traceback.format_tb(without_ours(error)), f"{type(error).__name__}: {text_of(error)}"]
    return "".join(lines)[-LONGEST:].rstrip()


def without_ours(error: BaseException) -> TracebackType | None:
    """An exception's traceback from where it enters the user's code."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return frame or error.__traceback__


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
