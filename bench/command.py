"""`python -m bench`: which loads, which peers, how thoroughly, and where the results go."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import click

from bench.load import Load, plan_loads
from bench.page import as_page
from bench.readme import update_readme
from bench.report import Report, read_json, write_json
from bench.run import FULL, QUICK, Plan, run
from bench.scaling import Curve, plan_curves
from bench.scaling.run import is_about_curves
from bench.table import as_markdown, goal_table, has_peers, machine_line, notes, scaling_parts, server_table
from bench.target import PEERS, Target, plan_targets

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help="One short round, three client shapes, small curves: minutes, and less exact.",
)
@click.option(
    "--only",
    metavar="LOADS",
    default="",
    help="Loads by the beginning of their names, or kinds: wire, producers, client, latency, scaling; "
    "separated by commas. For scaling alone no peer is started, and the files are called scaling.",
)
@click.option(
    "--peers",
    metavar="NAMES",
    default=",".join(PEERS),
    show_default=True,
    help="Whom to measure beside Tailrace; an empty word is nobody.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="How often each load runs on each target.")
@click.option("--seconds", type=click.FloatRange(min=0.1), help="How long each load runs.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="A directory on the disk to measure; nothing is left in it.",
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
    help="Measure nothing: make table and page of this JSON again.",
)
@click.option(
    "--readme",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Also put the tables of a full run into this README, between its marks.",
)
def command(
    quick: bool,
    only: str,
    peers: str,
    rounds: int | None,
    seconds: float | None,
    directory: Path | None,
    out: Path,
    render: Path | None,
    readme: Path | None,
) -> None:
    """Measure Tailrace beside its peers on this machine, and write a table, JSON and an HTML page.

    Measure a quiet machine: other work shows in every figure.
    """
    if render is not None:
        report = read_json(render)
        _write(report, out, render.stem)
        if readme is not None:
            _update(readme, report)
        return
    try:
        targets = plan_targets(words_of(peers))
        loads, curves = plan_measured(words_of(only), quick=quick)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    plan = plan_of(QUICK if quick else FULL, rounds=rounds, seconds=seconds)
    name = f"{'peers' if loads else 'scaling'}{'-quick' if quick else ''}"
    report = _run(targets, loads, curves, plan, directory or Path.cwd(), out, name)
    if readme is not None:
        _update(readme, report)
    click.echo("\n\n".join(_summary(report)))
    for line in notes(report):
        click.echo(f"note: {line}")
    if report.interrupted:
        sys.exit(130)


def plan_measured(words: tuple[str, ...], *, quick: bool) -> tuple[list[Load], list[Curve]]:
    """The loads and the curves that the words are for; without words all of both."""
    about_curves = tuple(word for word in words if is_about_curves(word))
    about_loads = tuple(word for word in words if not is_about_curves(word))
    loads = plan_loads(only=about_loads, quick=quick) if about_loads or not words else []
    curves = plan_curves(about_curves) if about_curves or not words else []
    return loads, curves


def _summary(report: Report) -> list[str]:
    peers = [goal_table(report), server_table(report)] if has_peers(report) else []
    return [machine_line(report), *peers, *scaling_parts(report)]


def plan_of(plan: Plan, *, rounds: int | None, seconds: float | None) -> Plan:
    """The plan with what the command line changes."""
    durations = (
        plan.durations if seconds is None else replace(plan.durations, seconds=seconds, client_s=seconds)
    )
    if rounds is not None:
        plan = replace(plan, rounds=rounds, client_rounds=rounds)
    return replace(plan, durations=durations)


def _run(
    targets: list[Target],
    loads: list[Load],
    curves: list[Curve],
    plan: Plan,
    directory: Path,
    out: Path,
    name: str,
) -> Report:
    out.mkdir(parents=True, exist_ok=True)
    with terminated_as_interrupted(), progress(plan.steps(loads, targets, curves)) as note:
        report = run(
            targets,
            loads,
            plan,
            directory=directory,
            note=note,
            save=lambda so_far: write_json(so_far, out / f"{name}.json"),
            curves=curves,
        )
    _write(report, out, name)
    return report


def _write(report: Report, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_json(report, out / f"{name}.json")
    (out / f"{name}.md").write_text(as_markdown(report), encoding="utf-8")
    (out / f"{name}.html").write_text(as_page(report), encoding="utf-8")
    click.echo(f"wrote {out / name}.json, .md and .html", err=True)


def _update(readme: Path, report: Report) -> None:
    try:
        update_readme(readme, report)
    except ValueError as error:
        raise click.ClickException(f"{readme}: {error}") from error
    click.echo(f"wrote the tables of {readme}", err=True)


def words_of(text: str) -> tuple[str, ...]:
    """Separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: servers are stopped, what there is is written."""

    def interrupt(_number: int, _where: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, lines elsewhere. It moves between steps only: drawing would be measured too."""
    if not sys.stderr.isatty():
        done = 0

        def print_line(text: str) -> None:
            nonlocal done
            done += 1
            click.echo(f"[{done}/{total}] {text}", err=True)

        yield print_line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as shown:
        task = shown.add_task("", total=total, completed=-1)
        yield lambda text: shown.update(task, description=text, advance=1, refresh=True)
