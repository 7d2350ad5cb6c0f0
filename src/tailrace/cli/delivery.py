"""Messages as commands show them while they come: the body as a line, or everything as JSON.

A line is the body with what is no text, or would steer a terminal, written out. In JSON the body is
`value`, as in every record; a value or key that is not UTF-8 is base64, and `value_encoding` or
`key_encoding` says so. `body` and `body_encoding` are older names of it:

    {"subscription", "topic", "partition", "offset", "id", "timestamp", "delivery_count", "key", "value",
     "properties"}

`headers` stands beside the properties where some of the record's headers cannot be a property.
"""

from __future__ import annotations

import base64
import sys
from types import TracebackType
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.output import Output
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.client.native.message import Delivered


class Shown:
    """Writes messages as they come, and counts them; as JSON they are one list, written on the way out."""

    def __init__(self, output: Output) -> None:
        self.count = 0
        self._output = output
        self._rows: list[dict[str, object]] = []

    def add(self, message: Delivered) -> None:
        """Show one; it is out of our hands when this returns, so that it may be acknowledged."""
        self.count += 1
        if self._output.format == "json":
            self._rows.append(message_row(message))
            return
        if self._output.format == "jsonl":
            self._output.rows([message_row(message)], columns=())
        else:
            click.echo(body_line(message), file=self._output.stream)
        (self._output.stream or sys.stdout).flush()

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was acknowledged is shown, however this ended. A failure that showed nothing prints nothing.
        if self._output.format == "json" and (kind is None or self._rows):
            self._output.rows(self._rows, columns=())

    def __str__(self) -> str:
        return "1 message" if self.count == 1 else f"{self.count:,} messages"


def body_line(message: Delivered) -> str:
    """The body in one line that no terminal obeys."""
    return "(tombstone)" if message.is_tombstone else escape(message.body.decode("utf-8", "backslashreplace"))


def message_row(message: Delivered) -> dict[str, object]:
    """A message as an object that JSON can hold."""
    row: dict[str, object] = {
        "subscription": message.subscription,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "id": message.id,
        "timestamp": message.timestamp,
        "delivery_count": message.delivery_count,
    }
    value = None if message.is_tombstone else message.body
    for name, data in (("key", message.key), ("value", value), ("body", value)):  # body: older name
        row[name], encoding = _text(data)
        if encoding:
            row[f"{name}_encoding"] = encoding
    row["properties"] = message.properties
    headers = message.headers
    if headers != [(name, value.encode()) for name, value in message.properties.items()]:
        row["headers"] = [_header(name, value) for name, value in headers]
    return row


def _header(name: str, value: bytes | None) -> dict[str, object]:
    text, encoding = _text(value)
    return {"name": name, "value": text, **({"encoding": encoding} if encoding else {})}


def _text(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, ""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
