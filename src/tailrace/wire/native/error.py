"""ERROR frames: a code by name, whether trying again may help, and a text for a person in the body."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model import ErrorCode
from tailrace.wire.native.frame import Frame, write_frame
from tailrace.wire.native.type import MessageType

_LETTERS_MAX = 2_000  # of the text; a longer one is cut

_CODES = {code.name: code for code in ErrorCode}


class ErrorReply(NamedTuple):
    """What an ERROR says."""

    code: ErrorCode
    retriable: bool
    message: str


def write_error(sequence: int, *, code: ErrorCode, message: str, retriable: bool = False) -> bytes:
    """The ERROR that answers a request; one with sequence 0 is the last word before the connection closes."""
    properties = {"_code": code.name, "_retriable": "1" if retriable else "0"}
    body = message[:_LETTERS_MAX].encode("utf-8", "backslashreplace")
    return write_frame(MessageType.ERROR, sequence=sequence, properties=properties, body=body)


def read_error(frame: Frame) -> ErrorReply:
    """What an ERROR says. A code that is not known here keeps its name in the text."""
    name = frame.properties.get("_code", "")
    message = str(frame.body, "utf-8", "replace")
    code = _CODES.get(name)
    if code is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        message = f"{name}: {message}" if name else message
    return ErrorReply(code, frame.properties.get("_retriable") == "1", message)
