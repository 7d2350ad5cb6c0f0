"""`tailrace bench`: loads against a broker that runs, `tailrace bench native`: the same, natively;
`tailrace bench spark`: topics through Spark, `tailrace bench log`: the log against the bare disk.

All run what `tailrace.bench` offers and show what it found. Progress is told on stderr and between the loads
only: a thread that draws it would be measured too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.alias import BOOTSTRAP_ALIASES, AliasedOption
from tailrace.cli.bench_output import page_option, show_verdicts, steps, write_page_file
from tailrace.cli.bench_spark import bench_spark
from tailrace.cli.connection import Cluster, anonymous_connection_option, exit_code_of
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.native import NativeNode, anonymous_node_option, native_exit_code_of
from tailrace.cli.output import Column, Output, Row, examples, output_option
from tailrace.model import BrokerError, escape

if TYPE_CHECKING:
    from tailrace.bench import LogReport
    from tailrace.bench.broker_report import BrokerReport
    from tailrace.bench.native.run import NativePlan
    from tailrace.bench.native.subject import NativeSubject
    from tailrace.bench.wire.broker import BrokerRun, Plan
    from tailrace.bench.wire.subject import Subject
    from tailrace.model.address import Address

_HINTS = (
    "What each load does: tailrace bench --help",
    "Next: tailrace bench log measures the disk; docs/performance-analysis.md tells how to tune.",
)

# What each load asks, for --help; kept here so that help imports no benchmark.
_LOADS = {
    "one": "the least that a record waits: one producer sends the next when the last is acknowledged",
    "unbatched": "requests a second with one record each, 8 connections with 5 requests in flight",
    "many": "how 64 producers share the broker, each waiting for every record",
    "produce-16k": "what comes in with the batches of an ordinary producer, 4 connections",
    "produce-1m": "what comes in with batches of 1 MB, 4 connections",
    "fetch-16k": "what goes out in small replies, read again and again, 4 connections",
    "fetch-1m": "what goes out in replies of 1 MB, 4 connections",
    "delivery": "from a producer to a consumer that waits: 1,000 records a second, each timed",
}

_NATIVE_LOADS = {
    "one": "the least that a publish waits: the next begins when the last is confirmed",
    "latency": "from publish to the handler of a subscription: 1,000 messages a second, each timed",
    "publish": "confirmed publishes a second, with 200 in flight, each waited for",
    "deliver": "acknowledged deliveries a second, one subscription that holds 200 at a time",
}
_NATIVE_HINTS = ("What each load does: tailrace bench native --help",)
_KAFKA_PORT = 9092


def _parse_only(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[str]:
    names = [name.strip() for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name not in _LOADS:
            raise click.BadParameter(f"{name!r} is not among {', '.join(_LOADS)}")
    return names


@click.group(
    name="bench",
    invoke_without_command=True,
    help="Measure a running broker, or the disk of this machine.\n\n"
    "Without a further word: loads over the wire against the broker at --bootstrap, Tailrace or Apache Kafka,"
    " in a topic of their own that is deleted at the end. It takes about 40 seconds and may write a few GB"
    " there. `tailrace bench native` measures publishing and subscriptions of Tailrace's own listener."
    " `tailrace bench spark` measures topics through Spark."
    " `tailrace bench log` measures the disk, and needs no broker.\n\n"
    "The loads:\n\n"
    + "\n\n".join(f"{name}: {text}" for name, text in _LOADS.items())
    + "\n\nThe figures: `per s` counts requests (records in delivery); p50, p99 and p99.9 are waiting times"
    " from sending to the answer (to the consumer in delivery); CPU and RSS are the broker's own, per"
    " request and per MB, and are there if it runs on this machine.",
    epilog=examples(
        "tailrace bench --quick",
        "tailrace bench --bootstrap kafka-1:9092,kafka-2:9092 --partitions 6",
        "tailrace bench --only one,delivery --acks 1",
        "tailrace bench --html report.html -o json > before.json",
        "tailrace bench native",
        "tailrace bench spark --quick",
        "tailrace bench log --quick",
    ),
)
@click.option("--quick", is_flag=True, help="A second for each load: about 10 seconds, and less exact.")
@click.option("--only", metavar="NAMES", callback=_parse_only, help="These loads, with commas.")
@click.option(
    "--acks",
    type=click.Choice(["all", "1"]),
    default="all",
    show_default=True,
    help="Who must have a record: all replicas in sync, or the leader.",
)
@click.option(
    "--partitions",
    cls=AliasedOption,
    aliases=("-p",),
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Of the topic; connections are spread over them.",
)
@click.option(
    "--record-bytes",
    type=click.IntRange(1, 10_000_000),
    default=100,
    show_default=True,
    help="Size of a record in one, unbatched, many and delivery.",
)
@page_option
@anonymous_connection_option
@output_option
@click.pass_context
def command(
    context: click.Context,
    quick: bool,
    only: list[str],
    acks: str,
    partitions: int,
    record_bytes: int,
    page: Path | None,
    cluster: Cluster,
    output: Output,
) -> int | None:
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return None
    from tailrace.bench.wire.broker import FULL_S, QUICK_S, SHAPES, Plan

    plan = Plan(
        seconds=QUICK_S if quick else FULL_S,
        shapes=[shape for shape in SHAPES if not only or shape.name in only],
        acks=-1 if acks == "all" else int(acks),
        partitions=partitions,
        record_bytes=record_bytes,
    )
    return _bench_broker(cluster, plan, page=page, output=output)


def _refuse_misplaced(context: click.Context) -> None:
    """An option in front of the subcommand would be ignored, and its owner would not know."""
    from click.core import ParameterSource

    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[-1]} stands before {context.invoked_subcommand}: write it behind, if it"
                " has that option.",
                context,
            )


# ---- a broker


def _bench_broker(cluster: Cluster, plan: Plan, *, page: Path | None, output: Output) -> int | None:
    from tailrace.bench.broker_report import report_of
    from tailrace.bench.wire.subject import find_subject

    try:
        subject = find_subject(cluster.bootstrap, timeout_s=cluster.timeout_s)
        run = _run(subject, plan)
    except BrokerError as error:
        raise CommandFailed(str(error), exit_code=exit_code_of(error)) from error
    report = report_of(subject, plan, run)
    _tell_broker(report, page=page, output=output, hints=_HINTS)
    return _end(str(subject.address), run)


def _tell_broker(report: BrokerReport, *, page: Path | None, output: Output, hints: Sequence[str]) -> None:
    if page is not None:
        from tailrace.bench.broker_page import write_broker_page

        write_page_file(page, write_broker_page(report, measured_at=datetime.now().astimezone()))
    if output.format == "table":
        _show_broker(report, output, hints)
    else:
        output.record(report.as_row())


def _run(subject: Subject, plan: Plan) -> BrokerRun:
    from tailrace.bench.wire.broker import run_broker_bench

    with steps(len(plan.shapes), lines=True) as note:
        return run_broker_bench(subject, plan, note=note)


def _end(address: str, run: BrokerRun) -> int | None:
    """Say how it ended, and return the exit code of a run that was stopped."""
    left = ""
    if run.topic_left is not None:
        left = f"Topic {run.topic_left} is still there. Try: tailrace topic delete {run.topic_left} --yes"
    if run.failure is not None:
        raise CommandFailed(
            f"{address} failed in the middle: {run.failure}. See what the broker itself says."
            + (f" {left}" if left else "")
        )
    if left:
        click.echo(f"warning: {escape(left)}", err=True)
    if run.interrupted:
        click.echo("stopped before the end", err=True)
        return ExitCode.INTERRUPTED
    return None


def _show_broker(report: BrokerReport, output: Output, hints: Sequence[str]) -> None:
    from tailrace.bench.broker_report import write_value

    columns = [Column("name", title="load")]  # not the title: with it no line would fit 80 columns
    columns += [Column(each.key, each.title, show=write_value, right=True) for each in report.figures()]
    rows: Sequence[Row] = [
        {"name": load.name, **{each.key: each.value_in(load) for each in report.figures()}}
        for load in report.loads
    ]
    if rows:
        output.rows(rows, columns=columns)
        click.echo()
    output.record({**report.lines(), **report.machine})
    for note in (*report.notes(), *hints):
        click.echo(note, err=True)


# ---- the native listener


@command.command(
    name="native",
    help="Measure publishing and subscriptions by the native listener of a broker that runs.\n\n"
    "Messages of 100 bytes by tailrace.client.AsyncClient, in a topic and subscriptions of their own that are"
    " deleted at the end. Both sides are this one process, so what the broker can do may be more.\n\n"
    "The loads:\n\n"
    + "\n\n".join(f"{name}: {text}" for name, text in _NATIVE_LOADS.items())
    + "\n\nThe figures: p50, p99 and p99.9 are waiting times, from the call of publish to its return, and to"
    " the handler in latency; CPU and RSS are the broker's own, and are there if it runs on this machine.",
    epilog=examples(
        "tailrace bench native",
        "tailrace bench native --node broker-1:9999 --bootstrap broker-1:9092 --seconds 10",
        "tailrace bench native --html report.html -o json > before.json",
    ),
)
@click.option("--quick", is_flag=True, help="A second for each load: under 10 seconds, and less exact.")
@click.option("--seconds", type=click.FloatRange(min=0.1), help="How long each load is measured.")
@click.option(
    "-b",
    "--bootstrap",
    cls=AliasedOption,
    aliases=BOOTSTRAP_ALIASES,
    envvar="TAILRACE_BOOTSTRAP",
    show_envvar=True,
    show_default="port 9092 of the node",
    metavar="HOST:PORT",
    help="The Kafka listener of the same broker: the topic is deleted there.",
)
@page_option
@anonymous_node_option
@output_option
def bench_native(
    quick: bool,
    seconds: float | None,
    bootstrap: str | None,
    page: Path | None,
    node: NativeNode,
    output: Output,
) -> int | None:
    from tailrace.bench.native.report import native_report_of
    from tailrace.bench.native.run import FULL_S, QUICK_S, NativePlan, look
    from tailrace.bench.native.subject import TIMEOUT_S
    from tailrace.model.address import Address

    plan = NativePlan(seconds=seconds or (QUICK_S if quick else FULL_S))
    try:
        subject = look(
            node.address,
            bootstrap=bootstrap or str(Address(_host_of(node.address), _KAFKA_PORT)),
            timeout_s=node.timeout_s or TIMEOUT_S,
        )
    except BrokerError as error:
        raise CommandFailed(str(error), exit_code=native_exit_code_of(error)) from error
    run = _run_native(subject, plan)
    _tell_broker(native_report_of(subject, plan, run), page=page, output=output, hints=_NATIVE_HINTS)
    return _end(str(subject.node), run)


def _host_of(node: Address) -> str:
    """The host of a broker whose native listener is here; a Unix socket is on this machine."""
    return "127.0.0.1" if node.path else node.host


def _run_native(subject: NativeSubject, plan: NativePlan) -> BrokerRun:
    from tailrace.bench.native.run import SHAPES, run_native_bench

    with steps(len(SHAPES), lines=True) as note:
        return run_native_bench(subject, plan, note=note)


# ---- the log


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
@page_option
@output_option
def bench_log(quick: bool, directory: Path, page: Path | None, output: Output) -> None:
    """Measure the log against the bare system calls on the same disk.

    Both take turns, and the figures are ratios of their medians: 1 is as fast as the bare calls. Other work
    on the machine still shows, so measure a quiet one.
    """
    from tailrace.bench import FULL, QUICK, STEPS, run_log_bench, write_page

    with steps(STEPS) as note:
        report = run_log_bench(directory, QUICK if quick else FULL, note=note)
    if page is not None:
        write_page_file(page, write_page(report, measured_at=datetime.now().astimezone()))
    if output.format == "table":
        _show_log(report, output)
    else:
        output.record(report.as_row())


def _show_log(report: LogReport, output: Output) -> None:
    from tailrace.bench import judge

    show_verdicts(judge(report), output)
    click.echo()
    output.record(report.machine)


command.add_command(bench_spark)
