"""The worker's log, for the person who reads it at night, and for the machine that does by day.

    events.py      events to records of the app's logger
    sentences.py   what is said of each
    lines.py       records as lines: plain
    colours.py     ... with colours and whole tracebacks: rich
    documents.py   ... as JSON, a document a line: json
    others.py      what Python would write to stderr as it is

Never an argument, in any of them. Handlers of one's own get the same records, with the event's fields as attributes.
"""

from __future__ import annotations

from typing import TextIO, get_args

from .event_log import EventLog
from .last_resort import install_last_resort, installed_last_resort
from .lines import Format, LineHandler

__all__ = ["FORMATS", "EventLog", "Format", "LineHandler", "handler", "install_last_resort", "installed_last_resort"]

FORMATS: tuple[Format, ...] = get_args(Format)


def handler(format: Format, stream: TextIO | None = None, *, process: str | None = None) -> LineHandler:
    """What writes a logger's records in one of the formats.

    `process` says on every line which of several processes it is from.
    """
    if format == "json":
        from .json_lines import JsonHandler

        return JsonHandler(stream, process=process)
    if format == "rich":
        from .rich_lines import RichHandler  # with rich, which others need not load

        return RichHandler(stream, process=process)
    return LineHandler(stream, process=process)
