"""Guests that come and go, so that whatever is kept for a guest and not given back would pile up.

A *group* has one member that joins, commits, reads its commits back and leaves; every fourth does not say
goodbye, and its session must run out. A *connection* is one of four: it asks and leaves; it leaves a fetch
behind that would wait for seconds; it breaks off inside a request; it does not read its answers. A *topic* is
made, filled a little and deleted.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence

from bench.soak.connection import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    VERSIONS,
    Connection,
    check,
    connect,
)
from bench.soak.shape import TOPIC
from tailrace.bench.wire import LoadError
from tailrace.bench.wire.kafka import FETCH_VERSION
from tailrace.wire.kafka import FETCH, FetchPartition, encode, write_fetch_request
from tailrace.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
from tailrace.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GUEST_PARTITIONS = 3
_COMMITS = 3
_SESSION_MS = 6_000  # the shortest that the broker takes
_SILENT_EVERY = 4  # every so many members leave without a word
_NEVER_BYTES = 1 << 30  # more than a fetch will ever find
_ABANDONED_MS = 5_000


# ---- a consumer group


async def visit_group(
    host: str, port: int, *, group: str, number: int, positions: Callable[[], Sequence[int]]
) -> None:
    """One member: in, a few commits, out. LoadError if anything is refused or forgotten."""
    async with connect(host, port) as way:
        found = await way.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=group), FindCoordinatorResponse)
        check(found.error_code, "find the coordinator")
        generation, member = await _join(way, group)
        offsets: list[int] = []
        for _ in range(_COMMITS):
            offsets = list(positions())
            await _commit(way, offsets, group=group, generation=generation, member=member)
            beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
            check((await way.ask(HEARTBEAT, beat, HeartbeatResponse)).error_code, "heartbeat")
        await check_committed(way, group, offsets)
        if number % _SILENT_EVERY != _SILENT_EVERY - 1:
            leave = LeaveGroupRequest(group_id=group, member_id=member)
            check((await way.ask(LEAVE_GROUP, leave, LeaveGroupResponse)).error_code, "leave the group")


async def _join(way: Connection, group: str) -> tuple[int, str]:
    """(generation, member id) of a member that has its assignment."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription())],
    )
    joined = await way.ask(JOIN_GROUP, request, JoinGroupResponse)
    check(joined.error_code, "join the group")
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=subscription())
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine] if joined.leader == joined.member_id else [],
    )
    check((await way.ask(SYNC_GROUP, sync, SyncGroupResponse)).error_code, "sync the group")
    return joined.generation_id, joined.member_id


def subscription() -> bytes:
    """What a consumer says of itself, version 0: the topics it wants, and no data of its own."""
    name = TOPIC.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


async def _commit(
    way: Connection, offsets: Sequence[int], *, group: str, generation: int, member: str
) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )
    answer = await way.ask(OFFSET_COMMIT, request, OffsetCommitResponse)
    for partition in answer.topics[0].partitions:
        check(partition.error_code, "commit offsets")


async def check_committed(way: Connection, group: str, offsets: Sequence[int]) -> None:
    """LoadError unless the group has just these offsets, one for each partition."""
    wanted = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(len(offsets))))
    answer = await way.ask(
        OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=[wanted]), OffsetFetchResponse
    )
    check(answer.error_code, "fetch committed offsets")
    kept = {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}
    if kept != dict(enumerate(offsets)):
        raise LoadError(f"committed {list(offsets)}, and the group has {kept}")


# ---- a connection


async def visit_connection(host: str, port: int, *, number: int, end: Callable[[], int]) -> None:
    """One of four kinds of guest, in turn; `end` is where partition 0 ends, about."""
    async with connect(host, port) as way:
        kind = number % 4
        if kind == 0:
            await _ask_politely(way)
        elif kind == 1:
            where = FetchPartition(0, -1, end(), -1, -1, _NEVER_BYTES)
            body = write_fetch_request(
                FETCH_VERSION, topics={TOPIC: [where]}, max_wait_ms=_ABANDONED_MS, min_bytes=_NEVER_BYTES
            )
            way.writer.write(way.request(FETCH, FETCH_VERSION, body))
            await way.writer.drain()
        elif kind == 2:
            request = way.request(METADATA, VERSIONS[METADATA], _metadata())
            way.writer.write(request[: len(request) // 2])
            await way.writer.drain()
            way.writer.transport.abort()
        else:
            for _ in range(3):
                way.writer.write(way.request(METADATA, VERSIONS[METADATA], _metadata()))
            await way.writer.drain()


def _metadata() -> bytes:
    return encode(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), VERSIONS[METADATA])


async def _ask_politely(way: Connection) -> None:
    check((await way.ask(API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)).error_code, "API versions")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    found = await way.ask(METADATA, request, MetadataResponse)
    check(found.topics[0].error_code, "metadata")


# ---- a topic


async def visit_topic(host: str, port: int, *, name: str, batch: bytes) -> None:
    """Made under a new name, given a batch in every partition, deleted."""
    async with connect(host, port) as way:
        new = CreatableTopic(name=name, num_partitions=GUEST_PARTITIONS, replication_factor=1)
        request = CreateTopicsRequest(topics=[new], timeout_ms=30_000)
        made = await way.ask(CREATE_TOPICS, request, CreateTopicsResponse)
        check(made.topics[0].error_code, f"create {name}")
        for partition in range(GUEST_PARTITIONS):
            await way.produce(batch, topic=name, partition=partition)
        gone = await way.ask(
            DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), DeleteTopicsResponse
        )
        check(gone.responses[0].error_code, f"delete {name}")


async def keep_visiting(
    visit: Callable[[int], Coroutine[None, None, None]],
    *,
    every_s: float,
    done: Callable[[], None],
    fail: Callable[[str], None],
) -> None:
    """A guest every so often until cancelled; one that takes longer delays the next."""
    number = 0
    while True:
        try:
            await visit(number)
            done()
        except (LoadError, OSError) as error:
            fail(str(error) or type(error).__name__)
        number += 1
        await asyncio.sleep(every_s)
