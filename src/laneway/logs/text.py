"""Makes foreign text safe for a log: errors repeat whatever text a remote server sent."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import TracebackType

from ..errors import text_of

#: Of any field, the message among them, so many characters reach a line.
LONGEST = 2_000
#: A traceback, each part of which is a field, is cut to its end beyond this.
LONGEST_TRACEBACK = 16_000

_OURS = str(Path(__file__).parent.parent) + os.sep


def cut(text: str) -> str:
    """The beginning of a text, if it is too long for a line of the log; its end says how long it was."""
    if len(text) <= LONGEST:
        return text
    end = f"… ({len(text):,} characters)"
    return text[: LONGEST - len(end)] + end


def one_line(text: str) -> str:
    """Text without line breaks and what would move a terminal's cursor: those are shown as escapes."""
    return text if text.isprintable() else "".join(map(_visible, text))


def harmless(text: str) -> str:
    """The same, but several lines stay; those behind the first are indented, so that none passes for a line of ours."""
    if text.isprintable():
        return text
    text = "".join(each if each in "\n\t" else _visible(each) for each in text)
    return text.rstrip("\n").replace("\n", "\n    ")


def traceback_text(error: BaseException, *, whole: bool = False) -> str:
    """An exception with where it came from, as Python prints it: code, and never any values.

    It begins in the user's code, unless the `whole` of it is wanted. The texts of errors are cut, so that the frames
    are seen; of too many frames the last are.
    """
    frames = error.__traceback__ if whole else without_ours(error)
    try:
        parts = traceback.format_exception(type(error), error, frames)
    except BaseException:  # Python asks objects for their names, to guess which one was meant
        parts = [*traceback.format_tb(frames), f"{type(error).__name__}: {text_of(error)}"]
    parts = [cut(part.rstrip("\n")) for part in parts]
    left, first = LONGEST_TRACEBACK - 40, len(parts)  # with room for what is said of the rest
    while first and left > len(parts[first - 1]):
        first -= 1
        left -= len(parts[first]) + 1
    if first:
        parts[:first] = [f"… ({first:,} parts before)"]
    return "\n".join(parts)


def without_ours(error: BaseException) -> TracebackType | None:
    """An exception's traceback from where it enters the user's code."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return frame or error.__traceback__


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]
