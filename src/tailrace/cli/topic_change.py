"""`tailrace topic create`, `alter`, `delete` and `purge`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.alias import AliasedOption
from tailrace.cli.connection import Cluster, confirm, connection_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.topic_detail import summaries

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

_config_option = click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting. May be repeated."
)
_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command(
    name="create",
    epilog=examples(
        "tailrace topic create orders",
        "tailrace topic create orders -P 12 -c retention.ms=86400000",
        "tailrace topic create users -c cleanup.policy=compact --if-not-exists",
    ),
)
@click.argument("topic")
@click.option(
    "-P",
    "--partitions",
    cls=AliasedOption,
    aliases=("-p",),
    type=click.IntRange(min=1),
    help="Default: the broker's.",
)
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="Default: the broker's.")
@_config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed if there is such a topic already.")
@_dry_run_option
@connection_option
@output_option
def create_topic(
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    """Create a topic."""
    settings = _settings(configs)

    async def work(client: KafkaClient) -> dict[str, Any]:
        from tailrace.client import admin

        if if_not_exists and topic in (known := await client.metadata([topic])) and not known[topic].error:
            info = known[topic]
            return {"name": topic, "created": False, "partitions": len(info.partitions)}
        made = await admin.create_topic(
            client,
            topic,
            partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            configs=settings,
            validate_only=dry_run,
        )
        return {
            "name": made.name,
            "created": not dry_run,
            "partitions": made.partitions,
            "replication_factor": made.replication_factor,
            "topic_id": made.topic_id,
        }

    row = cluster.run(work)
    if output.format != "table":
        output.record(row)
    elif row["created"] or dry_run:
        verb = "would create" if dry_run else "created"
        click.echo(f"{verb} {topic} with {_partitions(row['partitions'])}")
    else:
        click.echo(f"{topic} exists already with {_partitions(row['partitions'])}")


@click.command(
    name="alter",
    epilog=examples(
        "tailrace topic alter orders -c retention.ms=604800000",
        "tailrace topic alter orders --reset retention.ms",
        "tailrace topic alter orders --partitions 12 --dry-run",
    ),
)
@click.argument("topic")
@click.option(
    "-P",
    "--partitions",
    cls=AliasedOption,
    aliases=("-p",),
    type=click.IntRange(min=1),
    help="The new number, larger than now.",
)
@_config_option
@click.option("--reset", "resets", multiple=True, metavar="KEY", help="Back to the default. May be repeated.")
@_dry_run_option
@connection_option
@output_option
def alter_topic(
    topic: str,
    partitions: int | None,
    configs: tuple[str, ...],
    resets: tuple[str, ...],
    dry_run: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    """Change a topic's settings, or give it more partitions.

    Records with a key go to other partitions once there are more of them; those that are there stay.
    """
    settings = _settings(configs)
    if partitions is None and not settings and not resets:
        raise click.UsageError("nothing to change: give --config, --reset or --partitions.")

    async def work(client: KafkaClient) -> None:
        from tailrace.client import admin

        if settings or resets:
            await admin.alter_configs(client, topic, changes=settings, resets=resets, validate_only=dry_run)
        if partitions is not None:
            await admin.add_partitions(client, topic, partitions, validate_only=dry_run)

    cluster.run(work)
    row = {
        "name": topic,
        "altered": not dry_run,
        "configs": settings,
        "reset": list(resets),
        "partitions": partitions,
    }
    if output.format != "table":
        output.record(row)
        return
    done = [f"{key}={value}" for key, value in settings.items()]
    done += [f"{key} to its default" for key in resets]
    done += [] if partitions is None else [_partitions(partitions)]
    click.echo(f"{'would change' if dry_run else 'changed'} {topic}: {', '.join(done)}")


@click.command(
    name="delete",
    epilog=examples("tailrace topic delete old-orders", "tailrace topic delete a b c --yes"),
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@_dry_run_option
@_yes_option
@connection_option
@output_option
def delete_topics(
    topics: tuple[str, ...], dry_run: bool, yes: bool, cluster: Cluster, output: Output
) -> None:
    """Delete topics with everything in them."""
    before = cluster.run(lambda client: summaries(client, topics))
    if not dry_run:
        confirm(f"Delete {_listed(before)}?", yes=yes)
        cluster.run(lambda client: _delete(client, topics))
    rows = [{**each, "deleted": not dry_run} for each in before]
    if output.format != "table":
        output.rows(rows, columns=())
        return
    click.echo(f"{'would delete' if dry_run else 'deleted'} {_listed(before)}")


async def _delete(client: KafkaClient, topics: Iterable[str]) -> None:
    from tailrace.client import admin

    for topic in topics:
        await admin.delete_topic(client, topic)


@click.command(
    name="purge",
    epilog=examples(
        "tailrace topic purge orders --dry-run",
        "tailrace topic purge orders --before 7d --yes",
        "tailrace topic purge orders -p 0 --before-offset 1000 --yes",
    ),
)
@click.argument("topic")
@click.option("--before-offset", type=click.IntRange(min=0), metavar="N", help="Only records before this.")
@click.option("--before", metavar="TIME", help="Only records before a time: 7d, or 2026-11-16T09:00.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="May be repeated."
)
@_dry_run_option
@_yes_option
@connection_option
@output_option
def purge_topic(
    topic: str,
    before_offset: int | None,
    before: str | None,
    partitions: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    """Delete a topic's records and keep the topic.

    Offsets go on from where they are: a new record gets the offset it would have got anyway.
    """
    if before is not None and before_offset is not None:
        raise click.UsageError("--before and --before-offset exclude each other.")
    rows = cluster.run(lambda client: _plan_purge(client, topic, partitions, before_offset, before))
    count = sum(each["records"] for each in rows)
    if not dry_run:
        confirm(f"Delete {_records(count)} of {topic}?", yes=yes)
        cluster.run(lambda client: _purge(client, topic, rows))
    output.rows([{**each, "deleted": not dry_run} for each in rows], columns=_PURGE_COLUMNS)
    if output.format == "table":
        click.echo(f"{'would delete' if dry_run else 'deleted'} {_records(count)} of {topic}", err=True)


async def _plan_purge(
    client: KafkaClient, topic: str, only: Sequence[int], before_offset: int | None, before: str | None
) -> list[dict[str, Any]]:
    from tailrace.client.admin import extents
    from tailrace.model import TopicPartition
    from tailrace.runtime import SystemClock
    from tailrace.wire.json.moment import parse_moment

    info = await client.topic(topic)
    targets = [TopicPartition(topic, each) for each in (only or info.partitions)]
    reach = await extents(client, targets)
    ends = {target: each.end for target, each in reach.items()}
    if before_offset is not None:
        ends = {target: min(before_offset, end) for target, end in ends.items()}
    if before is not None:
        moment = parse_moment(before, now_ms=SystemClock().now_ms())
        found = await client.list_offsets(dict.fromkeys(targets, moment))
        ends |= {target: each.offset for target, each in found.items() if each.offset >= 0}
    return [
        {
            "partition": target.partition,
            "start_offset": reach[target].start,
            "new_start_offset": max(ends[target], reach[target].start),
            "records": max(ends[target] - reach[target].start, 0),
        }
        for target in targets
    ]


async def _purge(client: KafkaClient, topic: str, rows: Iterable[Mapping[str, Any]]) -> None:
    from tailrace.client.admin import delete_records
    from tailrace.model import TopicPartition

    before = {TopicPartition(topic, each["partition"]): each["new_start_offset"] for each in rows}
    await delete_records(client, before)


# ---- words


def _settings(texts: Iterable[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, found, value = text.partition("=")
        if not found or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--config")
        settings[key.strip()] = value
    return settings


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _listed(topics: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['name']} ({_records(each['records'])})" for each in topics)


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


_PURGE_COLUMNS = (
    Column("partition", right=True),
    Column("start_offset", "start", right=True),
    Column("new_start_offset", "new start", right=True),
    Column("records", right=True),
)
