"""JsonHandler: writes one JSON document per line, whatever values the record holds."""

from __future__ import annotations

import json
import logging
import math
import os
from datetime import UTC, datetime
from typing import Any

from ..errors import text_of
from .lines import LineHandler
from .text import LONGEST, cut, traceback_text

#: What every record has: the rest was given by somebody, in `extra`, and belongs into the document.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "raised"}
#: How deep a value of somebody's is followed.
DEPTH = 4


class JsonHandler(LineHandler):
    """Writes each record as a JSON document in a line of its own."""

    kind = "json"

    def line(self, record: logging.LogRecord) -> str:
        """The document, with the line break at its end."""
        text = json.dumps(self.document(record), ensure_ascii=False, allow_nan=False)
        if not text.isprintable():  # JSON may hold any character beyond the first 32; a terminal or a reader may not
            text = "".join(each if each.isprintable() else _escaped(each) for each in text)
        return text + "\n"

    def document(self, record: logging.LogRecord) -> dict[str, Any]:
        """A record as plain data."""
        found: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname,
            "logger": cut(record.name),
            "message": cut(record.getMessage()),
            "pid": os.getpid(),
        }
        if self.process_name is not None:
            found["process"] = self.process_name
        if traceback := _traceback(record):
            found["traceback"] = traceback
        for name, value in vars(record).items():
            if name not in _USUAL:
                found[name if name not in found else f"extra_{name}"] = _bounded(plain(value))
        return found


def _traceback(record: logging.LogRecord) -> str | None:
    error = getattr(record, "raised", None) or (record.exc_info[1] if record.exc_info else None)
    if error is not None:
        return traceback_text(error)
    return record.exc_text or record.stack_info


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it; what it cannot is shown as text."""
    if value is None or (isinstance(value, int) and value.bit_length() < LONGEST):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return cut(str(value))
    if depth < DEPTH and isinstance(value, dict):
        return {cut(text_of(name)): plain(each, depth + 1) for name, each in value.items()}
    if depth < DEPTH and isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each, depth + 1) for each in value]
    return cut(text_of(value))


def _bounded(value: Any) -> Any:
    """A field that is not too long: of a list its first items, of anything else the beginning of its text."""
    if not isinstance(value, (list, dict)) or len(text := json.dumps(value, ensure_ascii=False)) <= LONGEST:
        return value
    if isinstance(value, dict):
        return cut(text)
    left, count = LONGEST - 40, 0  # with room for what is said of the rest
    for each in value:
        left -= len(json.dumps(each, ensure_ascii=False)) + 2
        if left < 0:
            break
        count += 1
    return [*value[:count], f"… ({len(value) - count:,} more)"]


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]
