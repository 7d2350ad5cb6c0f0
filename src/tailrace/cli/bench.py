"""`tailrace bench`: runs the loads of `tailrace.bench` and shows the figures beside their goals."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.output import Column, Output, Row, examples, output_option

if TYPE_CHECKING:
    from tailrace.bench import LogReport, Verdict


@click.group(name="bench", no_args_is_help=True)
def command() -> None:
    """Measure what this machine and its disk can do."""


@command.command(
    name="log",
    epilog=examples(
        "tailrace bench log --quick",
        "tailrace bench log --dir /var/lib/tailrace",
        "tailrace bench log -o json > before.json",
        "tailrace bench log --html report.html",
    ),
)
@click.option("--quick", is_flag=True, help="Less data and fewer runs: under 20 seconds, and less exact.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(),
    show_default="here",
    help="A directory on the disk to measure; nothing is left in it.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Also write a page with the figures, their goals and the machine; it needs nothing but itself.",
)
@output_option
def bench_log(quick: bool, directory: Path, page: Path | None, output: Output) -> None:
    """Measure the log against the bare system calls on the same disk.

    Both take turns, and the figures are ratios of their medians: 1 is as fast as the bare calls. Other work
    on the machine still shows, so measure a quiet one.
    """
    from tailrace.bench import FULL, QUICK, STEPS, run_log_bench

    if page is not None and not page.parent.is_dir():  # before the work, not after it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(page.parent))
    with _steps(STEPS) as note:
        report = run_log_bench(directory, QUICK if quick else FULL, note=note)
    if page is not None:
        _write_page(report, page)
    if output.format == "table":
        _show(report, output)
    else:
        output.record(report.as_row())


def _write_page(report: LogReport, page: Path) -> None:
    from tailrace.bench import write_page

    page.write_text(write_page(report, measured_at=datetime.now().astimezone()), encoding="utf-8")
    click.echo(f"wrote {page}", err=True)


def _show(report: LogReport, output: Output) -> None:
    from tailrace.bench import judge

    columns = [
        Column("figure"),
        Column("measured", right=True),
        Column("goal", right=True),
        Column("met", title=""),
    ]
    output.rows([_row(verdict) for verdict in judge(report)], columns=columns)
    click.echo()
    output.record(report.machine)


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


@contextmanager
def _steps(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr that moves between the steps only: a thread that draws it would be measured too."""
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=total, completed=-1)

        def note(name: str) -> None:
            progress.update(task, description=name, advance=1, refresh=True)

        yield note
