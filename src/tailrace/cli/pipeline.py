"""`tailrace pipeline`: run pipelines on Spark, and see and stop the runs of any machine.

A run tells how it is in the topic `__tailrace_pipelines`: `list`, `status` and `stop` need nothing but a
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, connection_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.pipeline_files import command as files_command
from tailrace.cli.pipeline_run import command as run_command

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.wire.json.run_record import RunRecord

_LISTED_MAX = 20
_LOOK_EVERY_S = 0.5


@click.group(name="pipeline", no_args_is_help=True)
def command() -> None:
    """Run pipelines on Spark, see how far they are, and stop them."""


command.add_command(run_command)
command.add_command(files_command)


# ---- look


@command.command(
    name="list",
    epilog=examples("tailrace pipeline list", "tailrace pipeline list --all -o json"),
)
@click.option(
    "--all", "everything", is_flag=True, help=f"All that are known, not the newest {_LISTED_MAX} only."
)
@connection_option
@output_option
def list_runs(everything: bool, cluster: Cluster, output: Output) -> None:
    """List the runs of pipelines: those that run, and the newest that ended."""
    runs = cluster.run(_fetch)
    now = datetime.now(UTC)
    running = [run for run in runs if run.state_at(now) == "running"]
    ended = [run for run in runs if run.state_at(now) != "running"]
    shown = running + (ended if everything else ended[:_LISTED_MAX])
    output.rows([_row(run, now) for run in shown], columns=_LIST_COLUMNS)


@command.command(
    name="status",
    epilog=examples("tailrace pipeline status archive", "tailrace pipeline status 3f9ac1 -o json"),
)
@click.argument("run", metavar="ID|NAME")
@connection_option
@output_option
def show_status(run: str, cluster: Cluster, output: Output) -> None:
    """Show one run: how far it is, where it runs, and with which settings.

    A name means its newest run; of an id the beginning is enough.
    """
    now = datetime.now(UTC)
    found = _find(cluster.run(_fetch), run)
    fields = _row(found, now) | {"config": found.config, "progress": found.progress}
    if output.format != "table":
        output.record(fields)
        return
    progress = found.progress or {}
    facts = {**_row(found, now), "watermark": progress.get("watermark"), "note": progress.get("note")}
    facts = {key: value for key, value in facts.items() if value not in (None, "")}
    output.record(facts, columns=[Column(key, key.replace("_", " "), show=_figure) for key in facts])
    settings = {key: value for key, value in found.config.items() if value not in (None, [], "")}
    if settings:
        click.echo("\nSettings")
        output.record(settings, columns=[Column(key, show=_figure) for key in settings])
    missing = progress.get("missing")
    if isinstance(missing, list) and missing:
        click.echo("\nMissing from the lake: deleted from the topic before it was archived")
        rows = [_missing_row(each) for each in missing if isinstance(each, dict)]
        output.rows(rows, columns=[Column(key, show=_figure, right=key != "partition") for key in rows[0]])
    ends = _offsets(progress)
    if ends:
        click.echo("\nOffsets")
        output.rows(ends, columns=[Column("partition"), Column("offset", show=_figure, right=True)])


async def _fetch(client: KafkaClient) -> list[RunRecord]:
    from tailrace.spark.pipelines.run_topic import fetch_runs

    return await fetch_runs(client)


# ---- stop


@command.command(
    name="stop",
    epilog=examples("tailrace pipeline stop archive", "tailrace pipeline stop 3f9ac1 --wait"),
)
@click.argument("run", metavar="ID|NAME")
@click.option("--wait", is_flag=True, help="Return when the run has ended, or --timeout is over.")
@connection_option
@output_option
def stop_run(run: str, wait: bool, cluster: Cluster, output: Output) -> None:
    """Ask a run to stop after the batch under way, wherever it runs.

    A name means every run of it that is under way; of an id the beginning is enough.
    """
    ended = cluster.run(lambda client: _stop(client, run, timeout_s=cluster.timeout_s if wait else None))
    now = datetime.now(UTC)
    output.rows([_row(each, now) for each in ended], columns=_LIST_COLUMNS)
    if wait and any(each.state_at(now) == "running" for each in ended):
        raise CommandFailed(
            f"{run} still runs after {cluster.timeout_s:g} s; it was asked to stop, and does after its batch",
            exit_code=ExitCode.TIMEOUT,
        )


async def _stop(client: KafkaClient, wanted: str, *, timeout_s: float | None) -> list[RunRecord]:
    from tailrace.spark.pipelines.run_topic import fetch_runs, request_stop

    targets = _under_way(await fetch_runs(client), wanted)
    for run in targets:
        await request_stop(client, run.id)
    if timeout_s is None:
        return targets
    ids = {run.id for run in targets}
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        found = [run for run in await fetch_runs(client) if run.id in ids]
        now = datetime.now(UTC)
        if all(run.state_at(now) != "running" for run in found):
            return found
        if asyncio.get_running_loop().time() >= deadline:
            return found
        await asyncio.sleep(_LOOK_EVERY_S)  # another machine gives no sign but its record


def _under_way(runs: Sequence[RunRecord], wanted: str) -> list[RunRecord]:
    from tailrace.wire.json.run_record import find_runs, may_run

    now = datetime.now(UTC)
    targets = [run for run in find_runs(runs, wanted) if may_run(run, now)]
    if not targets:
        found = _find(runs, wanted)
        raise CommandFailed(
            f"{wanted} does not run: {found.id} {found.state} at {_moment(found.at)}",
            exit_code=ExitCode.NOT_FOUND,
        )
    return targets


# ---- rows


def _find(runs: Sequence[RunRecord], wanted: str) -> RunRecord:
    from tailrace.wire.json.run_record import find_runs

    found = find_runs(runs, wanted)
    if not found:
        raise CommandFailed(
            f"no run has the id or the name {wanted!r}. Try: tailrace pipeline list",
            exit_code=ExitCode.NOT_FOUND,
        )
    if found[0].name != wanted and len(found) > 1:
        raise CommandFailed(
            f"{wanted!r} is the beginning of several ids: {', '.join(run.id for run in found)}"
        )
    return found[0]


def _row(run: RunRecord, now: datetime) -> dict[str, Any]:
    progress = run.progress or {}
    return {
        "id": run.id,
        "name": run.name,
        "pipeline": run.pipeline,
        "state": run.state_at(now),
        "rows": progress.get("rows"),
        "rows_per_s": progress.get("rows_per_s"),
        "lag": progress.get("lag"),
        "missing": _missing_count(progress),
        "host": run.host,
        "pid": run.pid,
        "started_at": _moment(run.started_at),
        "at": _moment(run.at),
        "error": run.error,
    }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _offsets(progress: dict[str, Any]) -> list[dict[str, Any]]:
    offsets = progress.get("offsets")
    if not isinstance(offsets, dict):
        return []
    return [
        {"partition": f"{topic}-{partition}", "offset": offset}
        for topic, partitions in offsets.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    ]


def _missing_row(missing: dict[str, Any]) -> dict[str, Any]:
    first, last = missing.get("first_offset"), missing.get("last_offset")
    return {
        "partition": f"{missing.get('topic')}-{missing.get('partition')}",
        "from": first,
        "to": last,
        "offsets": last - first + 1 if isinstance(first, int) and isinstance(last, int) else None,
    }


def _missing_count(progress: dict[str, Any]) -> int | None:
    counts = progress.get("missing_offsets")
    if not isinstance(counts, dict):
        return None
    found = [count for each in counts.values() if isinstance(each, dict) for count in each.values()]
    return sum(count for count in found if isinstance(count, int)) or None


def _figure(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


_LIST_COLUMNS = [
    Column("id"),
    Column("name"),
    Column("pipeline"),
    Column("state"),
    Column("rows", show=_figure, right=True),
    Column("rows_per_s", "rows/s", show=_figure, right=True),
    Column("lag", show=_figure, right=True),
    Column("missing", show=_figure, right=True),
    Column("host"),
    Column("started_at", "started"),
    Column("error"),
]
