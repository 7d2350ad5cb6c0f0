"""Offsets: looked up by time, fetched from a group, committed to a group.

Each call takes many partitions, sends one request per broker concerned, and repeats for those partitions
alone whose answer may become better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.error import RETRIABLE, broker_error, check, error_code
from tailrace.client.keys import LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH
from tailrace.client.offset_time import EARLIEST as EARLIEST
from tailrace.client.offset_time import LATEST as LATEST
from tailrace.model import BrokerError, TopicPartition
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

_CONSUMER = -1  # as replica id: not a broker


class FoundOffset(NamedTuple):
    """Where a time is in a partition; offset -1 if every record is older."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str | None


async def list_offsets(
    client: KafkaClient, times: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """The offset at a time (ms, EARLIEST or LATEST) of each partition."""
    found: dict[TopicPartition, FoundOffset] = {}

    async def attempt() -> dict[TopicPartition, FoundOffset]:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, time_ms in times.items():
            if partition not in found:
                info = await client.leader(partition)
                by_leader.setdefault(info.leader, {})[partition] = time_ms
        requests = (
            _list_on(client, node, wanted, found, read_committed) for node, wanted in by_leader.items()
        )
        await asyncio.gather(*requests)
        return found

    return await client.retrying("looking up offsets", attempt)


async def _list_on(
    client: KafkaClient,
    node: int,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
    read_committed: bool,
) -> None:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), time_ms in wanted.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=time_ms, current_leader_epoch=-1)
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    reply: ListOffsetsResponse = await client.request(LIST_OFFSETS, request, node=node)
    errors: list[BrokerError] = []
    for topic_reply in reply.topics:
        for each in topic_reply.partitions:
            target = TopicPartition(topic_reply.name, each.partition_index)
            if each.error_code:
                errors.append(broker_error(each.error_code, f"offsets of {target}"))
            else:
                found[target] = FoundOffset(each.offset, each.timestamp, each.leader_epoch)
    raise_worst(errors)


async def committed(
    client: KafkaClient,
    group: str,
    partitions: Sequence[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """What a group has committed, of some partitions or of all it knows."""
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=require_stable)
    if partitions is not None:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request.topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]

    async def attempt() -> dict[TopicPartition, Committed]:
        reply: OffsetFetchResponse = await client.request(OFFSET_FETCH, request, coordinator=group)
        check(reply.error_code, f"offsets of group {group}")
        return _read_committed(reply)

    return await client.retrying(f"reading the offsets of group {group}", attempt)


def _read_committed(reply: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    found: dict[TopicPartition, Committed] = {}
    for topic in reply.topics:
        for each in topic.partitions:
            target = TopicPartition(topic.name, each.partition_index)
            check(each.error_code, f"committed offset of {target}")
            if each.committed_offset >= 0:
                found[target] = Committed(each.committed_offset, each.committed_leader_epoch, each.metadata)
    return found


async def commit(
    client: KafkaClient,
    group: str,
    positions: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """Commit offsets; what the coordinator refuses for good is an error."""
    if not positions:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    async def attempt() -> None:
        reply: OffsetCommitResponse = await client.request(OFFSET_COMMIT, request, coordinator=group)
        raise_worst(
            [
                broker_error(each.error_code, f"committing {topic.name}-{each.partition_index} for {group}")
                for topic in reply.topics
                for each in topic.partitions
                if each.error_code
            ]
        )

    await client.retrying(f"committing offsets of group {group}", attempt)


def raise_worst(errors: Sequence[BrokerError]) -> None:
    """Raise one of several errors, those that no retry mends before the others."""
    lasting = [error for error in errors if error_code(error.code) not in RETRIABLE]
    for error in [*lasting, *errors]:
        raise error
