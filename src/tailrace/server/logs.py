"""Log lines: one line each, for people or as JSON, with everything that could steer a terminal escaped.

A line is a fixed phrase and its fields. Names and texts of clients get into it, so whatever is not printable
is written out: nobody forges a second line or a colour. A traceback becomes part of its line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal, TextIO

from tailrace.model import escape


class TextFormatter(logging.Formatter):
    """`2031-05-06T07:08:09.123 INFO kafka.connection what happened`."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time_text(record), record.levelname, _area(record), _message(record)]
        return escape(" ".join(words))


class JsonFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "logger": ..., "message": ...}`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": _time_text(record) + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["error"] = _TRACEBACK.formatException(record.exc_info)
        return json.dumps(row)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the time, after the live line, if there is one, has made room."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.before = _nothing

    def emit(self, record: logging.LogRecord) -> None:
        self.before()
        super().emit(record)


def set_up_logs(*, level: str, form: Literal["text", "json"]) -> LineHandler:
    """Send everything that Tailrace logs to stderr; the handler is for `end_logs`."""
    handler = LineHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    ours = logging.getLogger("tailrace")
    ours.setLevel(level.upper())
    ours.addHandler(handler)
    ours.propagate = False
    # asyncio tells of callbacks that failed; nobody else would.
    logging.getLogger("asyncio").addHandler(handler)
    return handler


def end_logs(handler: LineHandler) -> None:
    """Undo `set_up_logs`, for a process that lives on."""
    ours = logging.getLogger("tailrace")
    ours.removeHandler(handler)
    ours.propagate = True
    ours.setLevel(logging.NOTSET)
    logging.getLogger("asyncio").removeHandler(handler)


_TRACEBACK = logging.Formatter()


def _nothing() -> None:
    """No live line to make room."""


def _time_text(record: logging.LogRecord) -> str:
    """UTC, as every log that is compared with another one."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}"


def _area(record: logging.LogRecord) -> str:
    return record.name.removeprefix("tailrace.")


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info:
        text += ": " + _TRACEBACK.formatException(record.exc_info)
    return text
