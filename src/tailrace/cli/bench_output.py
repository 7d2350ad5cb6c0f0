"""What the benchmarks of `tailrace bench` print alike: steps while they run, verdicts, and a page on request.

Progress is told on stderr and between the loads only: a thread that draws it would be measured too.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.output import Column, Output, Row

if TYPE_CHECKING:
    from tailrace.bench import Verdict

_VERDICT_COLUMNS = [
    Column("figure"),
    Column("measured", right=True),
    Column("goal", right=True),
    Column("met", title=""),
]


def page_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--html FILE`; it receives the path, whose directory exists, as `page`."""

    def check(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
        if value is not None and not value.parent.is_dir():  # before the work, not after it
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(value.parent))
        return value

    return click.option(
        "--html",
        "page",
        type=click.Path(path_type=Path, dir_okay=False, writable=True),
        metavar="FILE",
        callback=check,
        help="Also write a page with the figures and the machine; it needs nothing but itself.",
    )(command)


def show_verdicts(verdicts: Iterable[Verdict], output: Output) -> None:
    """Goals beside what was measured, as a table."""
    output.rows([_row(verdict) for verdict in verdicts], columns=_VERDICT_COLUMNS)


def _row(verdict: Verdict) -> Row:
    from tailrace.bench import write_figure

    goal = verdict.goal
    return {
        "figure": goal.text,
        "measured": "not there" if verdict.value is None else write_figure(verdict.value),
        "goal": ("at most " if goal.at_most else "at least ") + write_figure(goal.limit),
        "met": _mark(verdict.met),
    }


def _mark(met: bool | None) -> str:
    if met is None:
        return ""
    if sys.stdout.isatty():
        return "✓" if met else "✗"
    return "met" if met else "missed"


def write_page_file(page: Path, text: str) -> None:
    page.write_text(text, encoding="utf-8")
    click.echo(f"wrote {page}", err=True)


@contextmanager
def steps(total: int, *, lines: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar on stderr that moves between the steps; where there is no terminal, a line each if wanted."""
    if not sys.stderr.isatty():
        yield (lambda name: click.echo(name, err=True)) if lines else (lambda _name: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=total)
        done = count()  # when the first step begins, none is

        def note(name: str) -> None:
            progress.update(task, description=name, completed=next(done), refresh=True)

        yield note
