"""Batches to a leader and from a leader: one Produce or Fetch request each, with no retry of its own.

Record bytes go out from the caller's buffers and come in as slices of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.client.error import check
from tailrace.client.keys import FETCH, PRODUCE
from tailrace.client.pool import REQUESTS, Channel
from tailrace.model import ProtocolError, TopicPartition
from tailrace.records import BytesLike
from tailrace.wire.kafka import (
    FetchPartition,
    read_fetch_response,
    read_produce_response,
    write_fetch_request,
    write_produce_request,
)

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

_ANY_EPOCH = -1


@dataclass(slots=True)
class Produced:
    """What became of one batch."""

    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None


@dataclass(slots=True)
class Fetched:
    """What one partition answered to a fetch."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of the aborted transactions among these records."""
    records: memoryview
    """Whole batches, perhaps with the beginning of one more at the end."""


async def produce_to(
    client: KafkaClient,
    node: int,
    batches: Mapping[TopicPartition, BytesLike],
    *,
    acks: int,
    timeout_s: float,
    transactional_id: str | None = None,
    newest: int | None = None,
) -> dict[TopicPartition, Produced]:
    """One batch per partition to their leader. With acks=0 nothing comes back, and nothing is known.

    `newest` is that of `Connection.version_of`.
    """
    topics: dict[str, dict[int, BytesLike]] = {}
    for (topic, partition), batch in batches.items():
        topics.setdefault(topic, {})[partition] = batch
    connection = await client.connection_to(node)
    version = connection.version_of(PRODUCE, newest=newest)
    body = write_produce_request(
        version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topics=topics,
    )
    if acks == 0:
        await connection.send_only(PRODUCE, version, body)
        return {partition: Produced() for partition in batches}
    reply = await connection.exchange(PRODUCE, version, body)
    with connection.distrust():
        answer = read_produce_response(reply, version)
        done = {
            TopicPartition(name, each.index): Produced(
                each.error_code,
                each.base_offset,
                each.log_append_time_ms,
                each.log_start_offset,
                each.error_message,
            )
            for name, results in answer.topics
            for each in results
        }
        _check_complete(batches, done, "Produce")
    return done


async def fetch_from(
    client: KafkaClient,
    node: int,
    positions: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    read_committed: bool,
    channel: Channel = REQUESTS,
) -> dict[TopicPartition, Fetched]:
    """One fetch of partitions that a node leads; waits up to max_wait_ms for min_bytes."""
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        topics.setdefault(topic, []).append(
            FetchPartition(
                index=partition,
                current_leader_epoch=_ANY_EPOCH,
                fetch_offset=offset,
                last_fetched_epoch=_ANY_EPOCH,
                log_start_offset=-1,
                partition_max_bytes=partition_max_bytes,
            )
        )
    connection = await client.connection_to(node, channel)
    version = connection.version_of(FETCH)
    body = write_fetch_request(
        version,
        topics=topics,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
    )
    seconds = client.request_timeout_s + max_wait_ms / 1000
    reply = await connection.exchange(FETCH, version, [body], timeout_s=seconds)
    with connection.distrust():
        answer = read_fetch_response(reply, version)
        check(answer.error_code, "fetching")
        found = {
            TopicPartition(str(name), each.index): Fetched(
                each.error_code,
                each.high_watermark,
                each.last_stable_offset,
                each.log_start_offset,
                each.aborted or [],
                each.records if each.records is not None else memoryview(b""),
            )
            for name, results in answer.topics
            for each in results
        }
        _check_complete(positions, found, "Fetch")
    return found


def _check_complete(
    asked: Mapping[TopicPartition, object], answered: Mapping[TopicPartition, object], api: str
) -> None:
    missing = [str(each) for each in asked if each not in answered]
    if missing:
        raise ProtocolError(f"the reply to {api} says nothing about {', '.join(missing)}")
