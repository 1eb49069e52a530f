"""An exception as text: first a line that says it all, then where it came from. Never any values."""

from __future__ import annotations

import traceback
from pathlib import Path

LONGEST = 8_000
FRAMES = 20

_OURS = str(Path(__file__).parent.parent)


def describe(error: BaseException) -> str:
    """The error in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception as broken:
        text = f"(its text cannot be shown: {type(broken).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_error(error: BaseException) -> str:
    """The error as it is kept with its job."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    lines = [describe(error)[:LONGEST]]
    lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-FRAMES:]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines.append(f"caused by {describe(cause)}")
    return "\n".join(lines)[: 2 * LONGEST]
