"""An exception as text: first a line that says it all, then where it came from. Never any values."""

from __future__ import annotations

import traceback
from pathlib import Path

from ...errors import text_of

LONGEST = 8_000
FRAMES = 20

_OURS = str(Path(__file__).parent.parent.parent)


def describe(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_error(error: BaseException) -> str:
    """The error as it is kept with its job."""
    lines = [describe(error)[:LONGEST]]
    try:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    except BaseException:  # where the code is comes from its loader, which may be the user's own
        frames = []
    lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-FRAMES:]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines.append(f"caused by {describe(cause)}")
    return "\n".join(lines)[: 2 * LONGEST]
