"""The worker's log: telemetry as records of the app's logger, written as plain lines, with rich, or as JSON.

No format ever writes a job's arguments. The program's own handlers get the same records, with the event's fields as
attributes. rich is imported only for its format.

- `event_log`: turns telemetry into log records
- `sentences`: one sentence per event
- `lines`: plain lines; the base of the other formats
- `rich_lines`: coloured lines with tracebacks
- `json_lines`: one JSON document per line
- `last_resort`: writes warnings of other loggers in the log's format
- `text`: makes foreign text safe for a log
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
