"""`tailrace topic`: lists, describes, creates, changes, empties and deletes topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, connection_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.topic_change import alter_topic, create_topic, delete_topics, purge_topic
from tailrace.cli.topic_detail import (
    find_topic,
    offline_count,
    partition_details,
    partition_files,
    record_count,
    replication,
)
from tailrace.model import escape
from tailrace.model.text import size_of

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

_OVERRIDDEN = 1  # as a setting's source: set on the topic itself


@click.group(name="topic", no_args_is_help=True)
def command() -> None:
    """List, describe, create, change, empty and delete topics."""


for _change in (create_topic, alter_topic, delete_topics, purge_topic):
    command.add_command(_change)


# ---- list


@command.command(
    name="list",
    epilog=examples("tailrace topic list", "tailrace topic list -o json | jq '.[] | select(.records > 0)'"),
)
@click.option("--internal", is_flag=True, help="Those that the broker keeps for itself too.")
@connection_option
@output_option
def list_topics(internal: bool, cluster: Cluster, output: Output) -> None:
    """List topics with their partitions, records and bytes."""
    output.rows(cluster.run(lambda client: _list(client, internal)), columns=_LIST_COLUMNS)


async def _list(client: KafkaClient, internal: bool) -> list[dict[str, Any]]:
    found = await client.metadata()
    topics = [info for _name, info in sorted(found.items()) if internal or not info.internal]
    details = await partition_details(client, [info for info in topics if not info.error])
    rows = []
    for info in topics:
        parts = details.get(info.name, [])
        rows.append(
            {
                "name": info.name,
                "topic_id": info.topic_id,
                "partitions": len(info.partitions),
                "replication_factor": replication(info),
                "records": record_count(parts),
                "bytes": sum(each["bytes"] or 0 for each in parts),
                "offline": offline_count(info),
                "internal": info.internal,
            }
        )
    return rows


# ---- describe


@command.command(
    name="describe",
    epilog=examples(
        "tailrace topic describe orders",
        "tailrace topic describe orders --configs",
        "tailrace topic describe orders -o json | jq .partition_details",
    ),
)
@click.argument("topic")
@click.option("--configs", "all_configs", is_flag=True, help="Every setting, not only those that were set.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the broker's files are, if it runs on this machine. Default: as the broker says.",
)
@connection_option
@output_option
def describe_topic(
    topic: str, all_configs: bool, data_dir: Path | None, cluster: Cluster, output: Output
) -> None:
    """Show a topic's partitions, settings and files.

    Files are shown where the broker's data directory can be read from here; else the reason is.
    """
    found = cluster.run(lambda client: _describe(client, topic, all_configs))
    told = found.pop("log_dirs")
    directories = [Path(each) for each in told] if data_dir is None else [data_dir.absolute()]
    found["files"], found["files_not_shown"] = partition_files(directories, found["topic_id"])
    if output.format != "table":
        output.record(found)
        return
    shown = {key: value for key, value in found.items() if not isinstance(value, dict | list)}
    output.record(shown)
    click.echo("\nPartitions")
    output.rows(found["partition_details"], columns=_PARTITION_COLUMNS)
    if found["configs"]:
        click.echo("\nSettings")
        rows = [{"name": name, "value": value} for name, value in found["configs"].items()]
        output.rows(rows, columns=[Column("name"), Column("value")])
    click.echo("\nFiles")
    if found["files"]:
        output.rows(found["files"], columns=_FILE_COLUMNS)
    for each in found["files_not_shown"]:
        click.echo(f"those in {escape(each['path'])} are not shown: {escape(each['reason'])}")


async def _describe(client: KafkaClient, topic: str, all_configs: bool) -> dict[str, Any]:
    from tailrace.client.admin import log_directories, topic_configs

    info = await find_topic(client, topic)
    configs = await topic_configs(client, topic)
    details = await partition_details(client, [info])
    directories = await log_directories(client, {topic: list(info.partitions)})
    return {
        "name": info.name,
        "topic_id": info.topic_id,
        "partitions": len(info.partitions),
        "replication_factor": replication(info),
        "offline": offline_count(info),
        "internal": info.internal,
        "configs": {
            each.name: None if each.is_sensitive else each.value
            for each in sorted(configs, key=lambda each: each.name)
            if all_configs or each.config_source == _OVERRIDDEN
        },
        "partition_details": details[topic],
        "log_dirs": sorted({each.path for each in directories}),
    }


# ---- words


def _nodes(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


_LIST_COLUMNS = (
    Column("name", "topic"),
    Column("partitions", right=True),
    Column("replication_factor", "replicas", right=True),
    Column("records", show=lambda count: f"{count:,}", right=True),
    Column("bytes", show=size_of, right=True),
    Column(
        "offline", show=lambda count: f"{count} partitions, see: tailrace topic describe" if count else ""
    ),
)
_PARTITION_COLUMNS = (
    Column("partition", right=True),
    Column("leader", right=True),
    Column("leader_epoch", "epoch", right=True),
    Column("replicas", show=_nodes),
    Column("isr", "in sync", show=_nodes),
    Column("start_offset", "start", right=True),
    Column("end_offset", "end", right=True),
    Column("bytes", show=size_of, right=True),
)
_FILE_COLUMNS = (
    Column("partition", right=True),
    Column("path", "file"),
    Column("bytes", show=size_of, right=True),
    Column("first_offset", "first offset", right=True),
    Column("next_offset", "next offset", right=True),
    Column("records", right=True),
    Column("state"),
)
