"""`tailrace bench spark`: topics through Spark, by Tailrace's data source and by Spark's own.

It runs what tailrace.bench.spark offers and shows what it found.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.bench_output import page_option, show_verdicts, steps, write_page_file
from tailrace.cli.connection import Cluster, anonymous_connection_option, exit_code_of
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.model import BrokerError, escape

if TYPE_CHECKING:
    from tailrace.bench.spark.report import SparkReport
    from tailrace.bench.spark.run import SparkPlan, SparkRun
    from tailrace.bench.wire.subject import Subject

_HINTS = ("What each load does: tailrace bench spark --help",)
_COLUMNS = [Column(name, right=True) for name in ("tailrace", "spark-sql-kafka", "ratio", "unit")]

# What each load asks, for --help; kept here so that help imports no benchmark.
_LOADS = {
    "topic to noop": "a batch read of everything, dropped: what the source itself can do",
    "topic to Parquet": "the same, written by Spark's own writer",
    "topic to lake": "the archive pipeline, whose Python workers write the files themselves",
    "streaming": "everything that is there as a stream that then ends (AvailableNow), dropped",
    "topic to topic": "read and written back into another topic",
    "micro-batch": "how long a trigger takes that has 1,000 records",
    "first read": "10,000 records, in a session that has just started",
}


@click.command(
    name="spark",
    help="Measure topics through Spark: by Tailrace's data source, and by Spark's own Kafka source.\n\n"
    "Both read the same topic of the broker at --bootstrap in one Spark session, in turns. The topics are the"
    " benchmark's own and are deleted at the end. Spark's own source is four jars that Maven fetches once"
    " into the user's cache; where they cannot be had, Tailrace's is measured alone. It needs Java and"
    " tailrace[spark], takes about ten minutes and writes a few GB.\n\n"
    "The loads:\n\n"
    + "\n\n".join(f"{name}: {text}" for name, text in _LOADS.items())
    + "\n\nBeside them: how fast the codec turns fetched bytes into Arrow columns and back, and what the"
    " archive's Python workers hold at most with a short and a long backlog.",
    epilog=examples(
        "tailrace bench spark --quick",
        "tailrace bench spark --records 1000000 --master 'local[4]'",
        "tailrace bench spark --html report.html -o json > before.json",
    ),
)
@click.option("--quick", is_flag=True, help="Fewer records and rounds: about two minutes, and less exact.")
@click.option(
    "--records",
    type=click.IntRange(1_000, 1_000_000_000),
    show_default="4000000; 400000 with --quick",
    help="In the topic that is read.",
)
@click.option("--rounds", type=click.IntRange(1, 100), help="How often each load runs.")
@click.option("--master", metavar="MASTER", help="Where Spark runs.", show_default="local[2]")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    default=Path(),
    show_default="here",
    help="Where Parquet files are written; nothing is left in it.",
)
@page_option
@anonymous_connection_option
@output_option
def bench_spark(
    quick: bool,
    records: int | None,
    rounds: int | None,
    master: str | None,
    directory: Path,
    page: Path | None,
    cluster: Cluster,
    output: Output,
) -> int | None:
    from tailrace.spark.pipelines.session import check_spark

    check_spark()  # before anything that imports what comes with it
    from tailrace.bench.spark.report import spark_report_of
    from tailrace.bench.spark.run import plan_of
    from tailrace.bench.wire.subject import find_subject

    plan = plan_of(quick=quick, records=records, rounds=rounds, master=master)
    try:
        subject = find_subject(cluster.bootstrap, timeout_s=cluster.timeout_s)
        run = _run(subject, plan, directory)
    except BrokerError as error:
        raise CommandFailed(str(error), exit_code=exit_code_of(error)) from error
    _tell(spark_report_of(subject, plan, run, place=directory), page=page, output=output)
    return _end(str(subject.address), run)


def _run(subject: Subject, plan: SparkPlan, directory: Path) -> SparkRun:
    from tailrace.bench.spark.run import run_spark_bench

    with steps(plan.steps(), lines=True) as note:
        return run_spark_bench(subject, plan, place=directory.absolute(), note=note)


def _end(address: str, run: SparkRun) -> int | None:
    """Say how it ended, and return the exit code of a run that was stopped."""
    for topic in run.topics_left:
        click.echo(
            f"warning: topic {escape(topic)} is still there. Try: tailrace topic delete {topic} --yes",
            err=True,
        )
    if run.failure is not None:
        raise CommandFailed(f"{address} or Spark failed in the middle: {run.failure}")
    if run.interrupted:
        click.echo("stopped before the end", err=True)
        return ExitCode.INTERRUPTED
    return None


def _tell(report: SparkReport, *, page: Path | None, output: Output) -> None:
    from tailrace.bench.spark.report import judge

    if page is not None:
        from tailrace.bench.spark.page import write_spark_page

        write_page_file(page, write_spark_page(report, measured_at=datetime.now().astimezone()))
    if output.format != "table":
        output.record(report.as_row())
        return
    output.rows(report.rows(), columns=[Column("load"), *_COLUMNS])
    click.echo()
    show_verdicts(judge(report), output)
    click.echo()
    output.record({**report.lines(), **report.machine})
    for note in (*report.notes(), *_HINTS):
        click.echo(note, err=True)
