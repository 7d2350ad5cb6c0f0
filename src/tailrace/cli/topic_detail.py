"""What `tailrace topic` knows of topics: partitions with offsets and bytes, and the files they are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tailrace.cli.output import Row

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.metadata import TopicInfo


class CannotShow(Exception):
    """Why the files of a directory are not shown."""


async def partition_details(
    client: KafkaClient, topics: Sequence[TopicInfo]
) -> dict[str, list[dict[str, Any]]]:
    """Leader, offsets and bytes of every partition of some topics; without a leader, offsets are None."""
    from tailrace.client.admin import extents, log_directories
    from tailrace.client.metadata import NO_LEADER
    from tailrace.model import TopicPartition

    if not topics:
        return {}
    targets = [
        TopicPartition(info.name, each.partition)
        for info in topics
        for each in info.partitions.values()
        if each.leader != NO_LEADER
    ]
    reach = await extents(client, targets)
    directories = await log_directories(client, {info.name: list(info.partitions) for info in topics})
    sizes = {(each.node, target): size for each in directories for target, size in each.sizes.items()}

    def row(info: TopicInfo, partition: int) -> dict[str, Any]:
        target = TopicPartition(info.name, partition)
        part, extent = info.partitions[partition], reach.get(target)
        return {
            "partition": partition,
            "leader": part.leader,
            "leader_epoch": part.leader_epoch,
            "replicas": list(part.replicas),
            "isr": list(part.isr),
            "start_offset": None if extent is None else extent.start,
            "end_offset": None if extent is None else extent.end,
            "bytes": sizes.get((part.leader, target)),
        }

    return {info.name: [row(info, each) for each in info.partitions] for info in topics}


async def find_topic(client: KafkaClient, name: str) -> TopicInfo:
    """A topic as it is now. One whose partitions have no leader is returned without a wait."""
    info = (await client.metadata([name]))[name]
    info.check()
    return info


async def summaries(client: KafkaClient, topics: Iterable[str]) -> list[dict[str, Any]]:
    """How large topics are, in a line each."""
    infos = [await find_topic(client, topic) for topic in topics]
    details = await partition_details(client, infos)
    return [
        {
            "name": info.name,
            "partitions": len(info.partitions),
            "records": record_count(details[info.name]),
        }
        for info in infos
    ]


def record_count(details: Iterable[dict[str, Any]]) -> int:
    """How many records partitions hold, as far as they are served."""
    return sum(
        each["end_offset"] - each["start_offset"] for each in details if each["end_offset"] is not None
    )


def offline_count(info: TopicInfo) -> int:
    """How many partitions of a topic no node serves."""
    from tailrace.client.metadata import NO_LEADER

    return sum(each.leader == NO_LEADER for each in info.partitions.values())


def replication(info: TopicInfo) -> int:
    return max((len(each.replicas) for each in info.partitions.values()), default=0)


def partition_files(directories: Iterable[Path], topic_id: UUID) -> tuple[list[Row], list[Row]]:
    """The segment files of a topic, and for each directory that shows none the reason."""
    shown: list[Row] = []
    hidden: list[Row] = []
    for directory in directories:
        try:
            shown += _files_in(directory, topic_id)
        except CannotShow as error:
            hidden.append({"path": str(directory), "reason": str(error)})
    return shown, hidden


def _files_in(directory: Path, topic_id: UUID) -> list[Row]:
    from tailrace.model import StorageError
    from tailrace.storage.segment.inspection import inspect_directory

    if not directory.is_absolute():
        raise CannotShow("the broker names no directory, as one that keeps its records in memory")
    if not directory.is_dir():
        raise CannotShow(
            "there is no such directory here. Run this command on the broker's machine, or name the "
            "directory with --data-dir"
        )
    try:
        found = inspect_directory(directory, wanted=lambda each, _life: each.topic_id == topic_id)
    except (StorageError, OSError) as error:
        raise CannotShow(f"it cannot be read: {error}") from error
    if not found.partitions:
        raise CannotShow("it has no files of this topic. Name the broker's own directory with --data-dir")
    return [
        {
            "partition": partition.partition,
            "path": str(directory / segment.path),
            "bytes": segment.bytes,
            "first_offset": segment.first_offset,
            "next_offset": segment.next_offset,
            "records": segment.records,
            "state": segment.state,
        }
        for partition in found.partitions
        for segment in partition.segments
    ]
