"""What commands print: rows as a table or as JSON, progress while they work, examples in their help.

Results go to stdout, everything else to stderr. JSON is for programs: every field of a row, numbers as
numbers, ASCII only. A table is for people: the columns named, as a person writes them. Without a terminal
there is no colour and no bar, and no line is broken. Nothing that came out of a log can steer the terminal:
what is not printable is shown escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar
from uuid import UUID

import rich_click as click

from tailrace.model import escape

if TYPE_CHECKING:  # rich costs as much to import as all of click, and JSON does not need it
    from rich.console import Console

Format = Literal["table", "json", "jsonl"]
Row = Mapping[str, object]
Command = TypeVar("Command", bound=Callable[..., Any])

_PIPE_WIDTH = 10_000  # no terminal, nothing to fit into


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the rows, as the table shows it."""

    key: str
    title: str = ""  # the key, if empty
    show: Callable[[Any], str] = str
    right: bool = False  # numbers stand to the right


@dataclass(frozen=True, slots=True)
class Output:
    """Where and how one command shows its results."""

    format: Format = "table"
    stream: TextIO | None = None  # None: whatever stdout is at the time

    def rows(self, rows: Iterable[Row], *, columns: Sequence[Column]) -> None:
        """Show rows; `jsonl` shows each as it comes, so that a long listing needs no memory."""
        if self.format == "jsonl":
            for row in rows:
                self._json(row)
        elif self.format == "json":
            self._json(list(rows))
        else:
            self._table(rows, columns)

    def record(self, record: Row, *, columns: Sequence[Column] = ()) -> None:
        """Show one thing: an object in JSON, a line per field in a table."""
        if self.format == "table":
            shown = columns or [Column(key) for key in record]
            fields = [
                {"field": column.title or column.key, "value": _cell(record, column)} for column in shown
            ]
            self._table(fields, [Column("field"), Column("value")], header=False)
        else:
            self._json(record)

    def _json(self, value: object) -> None:
        indent = 2 if self.format == "json" else None
        text = json.dumps(value, indent=indent, default=_plain, allow_nan=False)
        print(text, file=self.stream or sys.stdout)

    def _table(self, rows: Iterable[Row], columns: Sequence[Column], *, header: bool = True) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header)
        for column in columns:
            title = Text(column.title or column.key)
            table.add_column(title, justify="right" if column.right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(escape(_cell(row, column))) for column in columns))
        _console(self.stream or sys.stdout).print(table)


def output_option(command: Command) -> Command:
    """Give a command `-o table|json|jsonl`; it receives an `Output` as its parameter `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "jsonl"]),
        default="table",
        show_default=True,
        callback=lambda _context, _parameter, value: Output(value),
        help="How to print the result.",
    )(command)


def examples(*lines: str) -> str:
    """An epilog that teaches by example; rich-click keeps a line break only where there are two."""
    return "\n\n".join(["Examples:", *lines])


@contextmanager
def progress_bar(description: str, *, bytes_total: int) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on stderr, if that is a terminal; the caller reports bytes as it goes."""
    if not sys.stderr.isatty():
        yield lambda _bytes_done: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(escape(description), total=bytes_total)
        yield lambda bytes_done: progress.advance(task, bytes_done)


def _cell(row: Row, column: Column) -> str:
    value = row.get(column.key)
    return "" if value is None else column.show(value)


def _plain(value: object) -> str:
    """What JSON has no type for. Not bytes: only a command knows what its bytes mean."""
    if isinstance(value, UUID | PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False, emoji=False)
