"""Records for one's own terminal: in colour, and with the whole traceback of what failed. Never a local variable:
there the arguments are."""

from __future__ import annotations

import copy
import io
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text
from rich.traceback import Traceback

from .lines import LineHandler, stamp
from .text import harmless, one_line, traceback_text, without_ours

_STYLES = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_PACKAGE = str(Path(__file__).parent.parent)
FRAMES = 20


class RichHandler(LineHandler):
    """Writes records as coloured lines; where the stream is no terminal, without the colours."""

    kind = "rich"

    def __init__(self, stream: TextIO | None = None, *, process: str | None = None) -> None:
        super().__init__(stream, process=process)
        self._terminal = Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def line(self, record: logging.LogRecord) -> str:
        """A record, and below it the traceback that came with it."""
        error = getattr(record, "raised", None) or (record.exc_info[1] if record.exc_info else None)
        if record.exc_info:
            # Shown below, in colour; others that get this record must find it as it was.
            record = copy.copy(record)
            record.exc_info = record.exc_text = None
        style = _STYLES.get(record.levelname, "")
        line = Text.assemble(
            (stamp(record), "dim"),
            " ",
            (f"{record.levelname:<7}", style),
            " ",
            (self.lead(), "cyan"),
            (harmless(self.format(record)), style if record.levelno >= logging.ERROR else ""),
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
        console.print(_Harmless(what), soft_wrap=isinstance(what, Text))
        return file.getvalue()


class _Harmless:
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
    except BaseException:  # rich asks the error for its text
        shown = Text(traceback_text(error))
    return Padding(shown, (0, 0, 0, 4))  # so that no line of the error's text passes for one of ours
