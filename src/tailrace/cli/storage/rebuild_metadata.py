"""`tailrace storage rebuild-metadata`: shows and applies what `tailrace.cluster.rebuild` plans."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.cluster.rebuild import RebuildPlan


@click.command(
    name="rebuild-metadata",
    epilog=examples(
        "tailrace storage rebuild-metadata ./tailrace-data --dry-run",
        "tailrace storage rebuild-metadata ./tailrace-data",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@output_option
def command(directory: Path, dry_run: bool, output: Output) -> None:
    """Make metadata.sqlite again if it is lost, damaged, or older than the logs.

    It comes from cluster.json, or the one before it; topics that neither knows come from the log directories,
    with their names and partitions and without their settings: these keep every record until they are set.
    Groups and subscriptions keep their offsets. The old file is kept. No record is touched.
    """
    from tailrace.cluster.rebuild import apply_rebuild, plan_rebuild
    from tailrace.runtime import DirectoryLock, SystemClock

    if not (directory / "journal").is_dir():
        raise CommandFailed(
            f"{directory} holds no log: it has no journal. Try: tailrace log inspect DIR",
            exit_code=ExitCode.NOT_FOUND,
        )
    lock = DirectoryLock(str(directory))
    try:
        plan = plan_rebuild(directory, now_ms=SystemClock().now_ms())
        is_needed = bool(plan.reasons)
        kept = apply_rebuild(plan) if is_needed and not dry_run else None
    finally:
        lock.release()
    if output.format != "table":
        output.record(_row(plan, kept=kept, rebuilt=is_needed and not dry_run))
        return
    _show(plan, kept=kept, dry_run=dry_run, output=output)


def _row(plan: RebuildPlan, *, kept: str | None, rebuilt: bool) -> dict[str, Any]:
    return {
        "directory": str(plan.directory),
        "rebuilt": rebuilt,
        "needed": bool(plan.reasons),
        "reasons": list(plan.reasons),
        "source": plan.source,
        "cluster_id": plan.cluster_id,
        "topics": [asdict(topic) for topic in plan.topics],
        "dropped": list(plan.dropped),
        "next_producer_id": plan.next_producer_id,
        "kept": kept,
    }


def _show(plan: RebuildPlan, *, kept: str | None, dry_run: bool, output: Output) -> None:
    if not plan.reasons:
        click.echo(f"nothing to do: the metadata in {plan.directory} is whole, and knows every log")
        return
    for reason in plan.reasons:
        click.echo(f"wrong now: {reason}")
    click.echo(f"{'would be restored' if dry_run else 'restored'} from {plan.source}")
    output.rows([asdict(topic) for topic in plan.topics], columns=_COLUMNS)
    if plan.dropped:
        click.echo(f"without any log, and so left out as deleted: {', '.join(plan.dropped)}")
    if any(topic.settings.startswith("default") for topic in plan.topics):
        click.echo(
            "settings are lost where they are default. Set them: tailrace topic alter TOPIC --config ..."
        )
    if kept:
        click.echo(f"the old metadata is kept in {kept}")
    if dry_run:
        click.echo("nothing was written (--dry-run)")


_COLUMNS = (
    Column("name", "topic"),
    Column("topic_id", "id"),
    Column("partitions", right=True),
    Column("source", "found in"),
    Column("settings"),
    Column("logs_missing", "logs missing", show=lambda count: str(count) if count else "", right=True),
)
