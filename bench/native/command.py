"""`python -m bench.native`: which peers, how thoroughly, and where the results go."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from bench.command import RESULTS, progress, terminated_as_interrupted, words_of
from bench.native.contender import PEERS, plan_contenders
from bench.native.run import FULL, QUICK, Plan, run
from bench.native.table import AGAINST, CHARTS, TITLE, as_markdown, goals_and_overview
from bench.page import as_page
from bench.report import Report, read_json, write_json
from bench.table import notes

NAME = "native"


@click.command()
@click.option("--quick", is_flag=True, help="One short round: under two minutes, and less exact.")
@click.option(
    "--peers",
    metavar="NAMES",
    default=",".join(PEERS),
    show_default=True,
    help="Whom to measure beside Tailrace; an empty word is nobody.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="How often each load runs on each.")
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
    help="Measure nothing: make Markdown and page of this JSON again.",
)
def command(
    quick: bool,
    peers: str,
    rounds: int | None,
    seconds: float | None,
    directory: Path | None,
    out: Path,
    render: Path | None,
) -> None:
    """Measure native messaging beside RabbitMQ, NATS JetStream and Redis Streams on this machine.

    Measure a quiet machine: other work shows in every figure. It takes about six minutes.
    """
    if render is not None:
        _write(read_json(render), out, render.stem)
        return
    try:
        contenders = plan_contenders(words_of(peers))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    plan = plan_of(QUICK if quick else FULL, rounds=rounds, seconds=seconds)
    name = f"{NAME}-quick" if quick else NAME
    out.mkdir(parents=True, exist_ok=True)
    with terminated_as_interrupted(), progress(plan.steps(contenders)) as note:
        report = run(
            contenders,
            plan,
            directory=directory or Path.cwd(),
            note=note,
            save=lambda so_far: write_json(so_far, out / f"{name}.json"),
        )
    _write(report, out, name)
    click.echo("\n\n".join(goals_and_overview(report)))
    for line in notes(report):
        click.echo(f"note: {line}")
    if report.interrupted:
        sys.exit(130)


def plan_of(plan: Plan, *, rounds: int | None, seconds: float | None) -> Plan:
    """The plan with what the command line changes."""
    if seconds is not None:
        plan = replace(plan, durations=replace(plan.durations, seconds=seconds, latency_s=seconds))
    return plan if rounds is None else replace(plan, rounds=rounds)


def _write(report: Report, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_json(report, out / f"{name}.json")
    (out / f"{name}.md").write_text(as_markdown(report), encoding="utf-8")
    (out / f"{name}.html").write_text(
        as_page(report, title=TITLE, against=AGAINST, charts=CHARTS), encoding="utf-8"
    )
    click.echo(f"wrote {out / name}.json, .md and .html", err=True)
