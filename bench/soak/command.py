"""`python -m bench.soak`: how long, how much, and where the results go."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from bench.soak.page import as_page
from bench.soak.report import (
    Report,
    as_markdown,
    headline,
    ledger_table,
    load_line,
    read_json,
    verdict_table,
    write_json,
)
from bench.soak.run import Plan, Progress, Wait, run

RESULTS = Path(__file__).parents[1] / "results"
NAME = "soak"
_LINE_EVERY_S = 60.0
INTERRUPTED = 130


@click.command()
@click.option(
    "--minutes", type=click.FloatRange(min=0.05), default=20.0, show_default=True, help="How long to soak."
)
@click.option(
    "--load",
    "share",
    type=click.FloatRange(min=0.01, max=1.0),
    default=0.5,
    show_default=True,
    help="How much of what the broker takes at most.",
)
@click.option(
    "--calibrate",
    "calibrate_s",
    type=click.FloatRange(min=0.5),
    default=6.0,
    show_default=True,
    help="Seconds in which that is found out.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="A directory on the disk to use; nothing is left in it.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=RESULTS,
    show_default=True,
    help="Where JSON, Markdown and HTML are written.",
)
@click.option(
    "--render",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run nothing: make Markdown and page of this JSON again.",
)
def command(
    minutes: float, share: float, calibrate_s: float, directory: Path | None, out: Path, render: Path | None
) -> None:
    """Run a broker at half load for a while and see whether memory, descriptors, event-loop lag and disk stay
    flat.

    Ctrl-C ends it early, with a report of what there is. The exit status is 1 if something is not flat, was
    refused or went missing, and 130 if it was ended early and nothing is wrong so far.
    """
    if render is not None:
        _write(read_json(render), out, render.stem)
        return
    plan = Plan(minutes=minutes, share=share, calibrate_s=calibrate_s)
    with stoppable() as wait, progress() as note:
        report = run(plan, directory=directory or Path.cwd(), wait=wait, note=note)
    _write(report, out, NAME)
    _show(report)
    sys.exit(status_of(report))


def status_of(report: Report) -> int:
    """Too little to judge after Ctrl-C is not a failure of the broker."""
    if report.interrupted and not report.failures:
        bad = [each for each in report.verdicts if not each.passed and each.last is not None]
        return 1 if bad else INTERRUPTED
    return 0 if report.passed else 1


def _write(report: Report, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_json(report, out / f"{name}.json")
    (out / f"{name}.md").write_text(as_markdown(report), encoding="utf-8")
    (out / f"{name}.html").write_text(as_page(report), encoding="utf-8")
    click.echo(f"wrote {out / name}.json, .md and .html", err=True)


def _show(report: Report) -> None:
    parts = [headline(report), load_line(report), verdict_table(report), ledger_table(report)]
    click.echo("\n\n".join(part for part in parts if part))
    for why in report.failures:
        click.echo(f"failure: {why}")


@contextmanager
def stoppable() -> Iterator[Wait]:
    """A wait that Ctrl-C and SIGTERM cut short, and every wait after it. The second signal ends at once."""
    wakes, wake = os.pipe()
    asked = False

    def stop(_number: int, _where: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        os.write(wake, b".")

    def wait(seconds: float) -> bool:
        return bool(select.select([wakes], [], [], seconds)[0])

    before = [(number, signal.signal(number, stop)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield wait
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        os.close(wakes)
        os.close(wake)


@contextmanager
def progress() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal; elsewhere a line for every step and every minute."""
    if not sys.stderr.isatty():
        yield line_printer(lambda line: click.echo(line, err=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # In a narrow window the text gives way, not the time that is left.
    columns = (
        BarColumn(bar_width=12, table_column=Column(min_width=12)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("left, {task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("")
        yield lambda now: shown.update(task, description=now.text, completed=now.done_s, total=now.span_s)


def line_printer(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Says what comes before the soak at once, and of the soak one line a minute."""
    next_s = 0.0

    def show(now: Progress) -> None:
        nonlocal next_s
        if not now.done_s:
            say(now.text)
        elif now.done_s >= next_s:
            next_s = (now.done_s // _LINE_EVERY_S + 1) * _LINE_EVERY_S
            done, span, left = _clock(now.done_s), _clock(now.span_s), _clock(now.span_s - now.done_s)
            say(f"[{done} of {span}, {left} left] {now.text}")

    return show


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
