"""`python -m bench.spark`: which broker, how thoroughly, and where the results go."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from bench.command import RESULTS, progress, terminated_as_interrupted
from bench.server import NotHere, Server
from bench.server.kafka import KafkaServer
from bench.server.process import HOST
from bench.server.tailrace import TailraceServer
from bench.spark.table import as_markdown, overview
from tailrace.bench.spark.page import write_spark_page
from tailrace.bench.spark.report import SparkReport, spark_report_of
from tailrace.bench.spark.run import SparkPlan, SparkRun, plan_of, run_spark_bench
from tailrace.bench.wire.subject import find_subject

_TIMEOUT_S = 30.0


@click.command()
@click.option("--quick", is_flag=True, help="Fewer records and rounds: about two minutes, and less exact.")
@click.option("--records", type=click.IntRange(min=1_000), help="In the topic that is read.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often each load runs.")
@click.option("--master", help="Where Spark runs.", show_default="local[2]")
@click.option("--broker", type=click.Choice(["tailrace", "kafka"]), default="tailrace", show_default=True)
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
def command(
    quick: bool,
    records: int | None,
    rounds: int | None,
    master: str | None,
    broker: str,
    directory: Path | None,
    out: Path,
) -> None:
    """Measure topics through Spark, by Tailrace's data source and by Spark's own, on one broker.

    Measure a quiet machine: other work shows in every figure. It takes about ten minutes.
    """
    plan = plan_of(quick=quick, records=records, rounds=rounds, master=master)
    name = "spark" + ("-kafka" if broker == "kafka" else "") + ("-quick" if quick else "")
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-", dir=directory or Path.cwd()) as made:
        report, run = _measure(broker, plan, Path(made))
    _write(report, out, name, took_s=time.monotonic() - began)
    click.echo("\n\n".join(overview(report)))
    for note in report.notes():
        click.echo(f"note: {note}")
    if run.failure is not None:
        raise click.ClickException(run.failure)
    if run.interrupted:
        sys.exit(130)


def _measure(broker: str, plan: SparkPlan, place: Path) -> tuple[SparkReport, SparkRun]:
    server: Server = KafkaServer() if broker == "kafka" else TailraceServer(fsync="commit")
    try:
        server.find()
        server.start(place / "broker")
    except NotHere as error:
        raise click.ClickException(str(error)) from error
    try:
        subject = find_subject(f"{HOST}:{server.port}", timeout_s=_TIMEOUT_S)
        with terminated_as_interrupted(), progress(plan.steps()) as note:
            run = run_spark_bench(subject, plan, place=place, note=note)
        return spark_report_of(subject, plan, run, place=place), run
    finally:
        server.stop()


def _write(report: SparkReport, out: Path, name: str, *, took_s: float) -> None:
    now = datetime.now(UTC)
    row = {"ended": now.strftime("%Y-%m-%d %H:%M UTC"), "took_s": round(took_s, 1), **report.as_row()}
    (out / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(as_markdown(report, measured_at=now), encoding="utf-8")
    (out / f"{name}.html").write_text(write_spark_page(report, measured_at=now), encoding="utf-8")
    click.echo(f"wrote {out / name}.json, .md and .html", err=True)
