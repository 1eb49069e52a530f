"""RichHandler: writes records for a terminal, in colour and with the traceback of an error.

It never shows local variables, because they hold a job's arguments.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text
from rich.traceback import Trace, Traceback

from ..errors import text_of
from .lines import LineHandler, below, message, stamp
from .text import cut, one_line, traceback_text, without_ours

_STYLES = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_PACKAGE = str(Path(__file__).parent.parent)
#: So many frames of an error are shown, and so many errors of those that led to it.
FRAMES, ERRORS = 20, 10


class RichHandler(LineHandler):
    """Writes records as coloured lines; where the stream is no terminal, without the colours."""

    kind = "rich"

    def __init__(self, stream: TextIO | None = None, *, process: str | None = None) -> None:
        super().__init__(stream, process=process)
        self._terminal = Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def line(self, record: logging.LogRecord) -> str:
        """A record, and below it the traceback that came with it."""
        error = getattr(record, "raised", None) or (record.exc_info[1] if record.exc_info else None)
        said = message(record)
        if error is None:
            said += below(record)
        style = _STYLES.get(record.levelname, "")
        line = Text.assemble(
            (stamp(record), "dim"),
            " ",
            (f"{record.levelname:<7}", style),
            " ",
            (self.lead(), "cyan"),
            (said, style if record.levelno >= logging.ERROR else ""),
        )
        return self._rendered(line) + (self._rendered(_traceback(error)) if error is not None else "")

    def _rendered(self, what: RenderableType) -> str:
        terminal, file = self._terminal, io.StringIO()
        console = Console(
            file=file,
            width=terminal.width,
            force_terminal=terminal.is_terminal,
            no_color=terminal.no_color,
            highlight=False,
            markup=False,
            emoji=False,
        )
        console.print(_SafeRenderable(what), soft_wrap=isinstance(what, Text))
        return file.getvalue()


class _SafeRenderable:
    """Anything that rich can show, without control characters that were in its text."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._inner, options):
            if not segment.control:
                lines = segment.text.split("\n")  # those that rich has made
                yield Segment("\n".join(map(one_line, lines)), segment.style)


def _traceback(error: BaseException) -> Padding:
    shown: RenderableType
    try:
        shown = Traceback.from_exception(
            type(error), error, without_ours(error), show_locals=False, max_frames=FRAMES, suppress=[_PACKAGE]
        )
        _cut_all(shown.trace)
    except BaseException:  # rich asks the error for its text
        shown = Text(traceback_text(error))
    return Padding(shown, (0, 0, 0, 4))  # so that no line of the error's text passes for one of ours


def _cut_all(trace: Trace) -> None:
    """Cut the texts of the errors that a traceback is made of, so that its frames are seen."""
    del trace.stacks[ERRORS:]
    for stack in trace.stacks:
        stack.exc_value = cut(stack.exc_value)
        if stack.syntax_error is not None:
            stack.syntax_error.line, stack.syntax_error.msg = cut(stack.syntax_error.line), cut(stack.syntax_error.msg)
        if hasattr(stack, "notes"):  # since rich 14
            stack.notes = [cut(text_of(note)) for note in stack.notes[:ERRORS]]
            del stack.exceptions[ERRORS:]
            for each in stack.exceptions:
                _cut_all(each)
