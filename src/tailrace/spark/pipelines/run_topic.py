"""The topic `__tailrace_pipelines` by way of a client: runs are written to it, read from it, asked to stop.

Whoever writes makes the topic if it is not there; whoever reads takes a missing one for an empty one. Works
on Tailrace, where the topic is internal, and on Apache Kafka, where it is a topic like any other.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from tailrace.client import admin
from tailrace.client.error import STALE_METADATA, UnknownTopic, check
from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import EARLIEST
from tailrace.client.pool import Channel
from tailrace.client.reading import RecordReader
from tailrace.client.transfer import Fetched, fetch_from
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.records import Record, build_batch
from tailrace.wire.json.run_record import (
    TOPIC,
    TOPIC_CONFIGS,
    RunRecord,
    StopRequest,
    gather_runs,
    plan_forgotten,
    run_key,
    stop_key,
    write_record,
)

_PLACE = TopicPartition(TOPIC, 0)
_PIECE_RECORDS = 1_000
_FETCH_BYTES = 4 << 20
_FOLLOWING = Channel("pipelines")

Entry = tuple[bytes, bytes | None]


async def ensure_topic(client: KafkaClient) -> None:
    """Make the topic unless it is there."""
    known = (await client.metadata([TOPIC])).get(TOPIC)
    if known is not None and not known.error:
        return
    try:
        await admin.create_topic(client, TOPIC, partitions=1, configs=TOPIC_CONFIGS)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # somebody else was first
            raise


async def write_entries(client: KafkaClient, entries: Sequence[Entry]) -> int:
    """Append records, and return where the first of them is."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([(now_ms, key, value, ()) for key, value in entries])
    return (await client.produce(TOPIC, _PLACE.partition, batch)).base_offset


async def follow(
    client: KafkaClient, position: int, *, until: int | None = None, wait_ms: int = 500
) -> AsyncIterator[Record]:
    """The records from a position on, up to an offset or for ever; in a topic that was made anew, all."""
    while until is None or position < until:
        fetched = await _fetch(client, position, wait_ms=wait_ms)
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            position = (await client.list_offsets({_PLACE: EARLIEST}))[_PLACE].offset
            continue
        check(fetched.error_code, f"reading {TOPIC}")
        reader = RecordReader(fetched, position)
        while records := reader.take(_PIECE_RECORDS):
            for record in records:
                yield record
        if until is not None and reader.position == position:
            return  # what lies before the end and is not sent was compacted away
        position = reader.position


async def _fetch(client: KafkaClient, position: int, *, wait_ms: int) -> Fetched:
    """On a connection of its own: one that waits for records holds up what comes behind it."""
    leader = (await client.leader(_PLACE)).leader
    found = await fetch_from(
        client,
        leader,
        {_PLACE: position},
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        partition_max_bytes=_FETCH_BYTES,
        read_committed=False,
        channel=_FOLLOWING,
    )
    fetched = found[_PLACE]
    if fetched.error_code in STALE_METADATA:
        client.cluster.topics.pop(TOPIC, None)
    return fetched


async def fetch_runs(client: KafkaClient) -> list[RunRecord]:
    """Every run that the topic tells of, newest first."""
    known = (await client.metadata([TOPIC])).get(TOPIC)
    if known is None or known.error:
        return []
    extent = (await admin.extents(client, [_PLACE]))[_PLACE]
    records = follow(client, extent.start, until=extent.end, wait_ms=0)
    try:
        return gather_runs([(record.key, record.value) async for record in records])
    except UnknownTopic:  # deleted meanwhile
        return []


async def request_stop(client: KafkaClient, run_id: str) -> None:
    """Ask a run to stop; it does after the batch under way, if it is still there."""
    request = StopRequest(at=datetime.now(UTC), by=f"{_user()}@{socket.gethostname()}")
    await write_entries(client, [(stop_key(run_id), write_record(request))])


async def forget_old_runs(client: KafkaClient) -> None:
    """Give tombstones to the runs that ended long ago, so that the topic stays short for ever."""
    forgotten = plan_forgotten(await fetch_runs(client), now=datetime.now(UTC))
    keys = [key(run.id) for run in forgotten for key in (run_key, stop_key)]
    if keys:
        await write_entries(client, [(key, None) for key in keys])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as somebody that nobody knows
        return str(os.getuid())
