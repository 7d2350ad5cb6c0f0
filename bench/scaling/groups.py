"""More consumer groups, each with one committed position.

Nobody is a member: a position is committed as an administrator does it, or a consumer that chooses its own
partitions. First every group commits once; then the server is restarted, so that what it reads back is one
record a group; then sixteen connections fetch positions, and commit them again.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import MEMORY, Curve, Figure
from bench.scaling.push import Line, push
from tailrace.bench.wire import FixedReader, Lane, LoadError
from tailrace.bench.wire.kafka import CLIENT_ID
from tailrace.bench.wire.ring import ring_of
from tailrace.bench.wire.topic import admin, connect, read_exactly, read_reply
from tailrace.wire.kafka import Message, decode, encode, read_response_head, write_request
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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

CONNECTIONS = 16
_TOPIC = "scaling-groups"
_OFFSET_COMMIT, _OFFSET_FETCH, _LIST_GROUPS = 8, 9, 16
_VERSIONS = {_OFFSET_COMMIT: 7, _OFFSET_FETCH: 5, _LIST_GROUPS: 2}
_POSITION = 1
_LISTS = 5
_SIZE = struct.Struct(">i")


def measure(bed: Bed, groups: int) -> Row:
    """Commit, come back, fetch, list, commit again."""
    names = group_names(groups)
    with admin(bed.host, bed.port) as client:
        client.create(_TOPIC, partitions=1, configs={})
    create_groups(bed, names)
    back = bed.restart(lambda: count_groups(bed) == groups)
    rss_mb = bed.rss_mb
    lists_ms = sorted(_list_ms(bed, groups) for _ in range(_LISTS))
    fetched = bed.drive(_lanes(bed, names, fetch_frame, check_fetched))
    committed = bed.drive(_lanes(bed, names, commit_frame, check_committed))
    return {
        **committed,
        "fetch_p99_ms": fetched["p99_ms"],
        "list_ms": lists_ms[_LISTS // 2],
        "rss_mb": rss_mb,
        "listening_ms": back["listening_ms"],
        "coordinator_ms": back["ready_ms"],
    }


def group_names(count: int) -> list[str]:
    """All of one length, so that their requests have one size."""
    return [f"group-{each:06}" for each in range(count)]


def create_groups(bed: Bed, names: Sequence[str]) -> None:
    """Every group commits once."""
    reply = sample_reply(bed, commit_frame(names[0]), check_committed)
    lines = []
    for share in _shares(names):
        reader = FixedReader(reply_bytes=len(reply), begins=reply)
        frames = iter([commit_frame(name) for name in share])
        lines.append(Line(sock=connect(bed.host, bed.port), frames=frames, reader=reader))
    push(lines)


def _lanes(
    bed: Bed, names: Sequence[str], frame: Callable[[str], bytes], check: Callable[[memoryview], None]
) -> list[Lane]:
    """Connections that each go through their groups. All answers are the same bytes, which a reader knows."""
    reply = sample_reply(bed, frame(names[0]), check)
    lanes = []
    for share in _shares(names):
        frames = [frame(name) for name in share]
        ring = ring_of(frames, payload_bytes=len(frames[0]))
        reader = FixedReader(reply_bytes=len(reply), begins=reply)
        lanes.append(Lane(sock=connect(bed.host, bed.port), ring=ring, reader=reader, in_flight=1))
    return lanes


def _shares(names: Sequence[str]) -> list[Sequence[str]]:
    return [share for each in range(CONNECTIONS) if (share := names[each::CONNECTIONS])]


def sample_reply(bed: Bed, frame: bytes, check: Callable[[memoryview], None]) -> bytes:
    """The whole answer to one request, once it was found to be good."""
    with connect(bed.host, bed.port) as sock:
        sock.sendall(frame)
        head = read_exactly(sock, _SIZE.size)
        (size,) = _SIZE.unpack(head)
        reply = head + read_exactly(sock, size)
    check(memoryview(reply)[_SIZE.size :])
    return reply


def commit_frame(group: str) -> bytes:
    """OffsetCommit from outside of the group."""
    position = OffsetCommitRequestPartition(committed_offset=_POSITION, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=_TOPIC, partitions=[position])
    return _frame(_OFFSET_COMMIT, OffsetCommitRequest(group_id=group, topics=[topic]))


def fetch_frame(group: str) -> bytes:
    """OffsetFetch of the one position."""
    topic = OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0])
    return _frame(_OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=[topic]))


def _frame(key: int, request: Message) -> bytes:
    version = _VERSIONS[key]
    return write_request(key, version, 0, CLIENT_ID, encode(request, version))


def check_committed(reply: memoryview) -> None:
    version = _VERSIONS[_OFFSET_COMMIT]
    body = read_response_head(_OFFSET_COMMIT, version, reply)[1]
    error_code = decode(OffsetCommitResponse, version, body).topics[0].partitions[0].error_code
    if error_code:
        raise LoadError(f"a commit was answered with error {error_code}")


def check_fetched(reply: memoryview) -> None:
    version = _VERSIONS[_OFFSET_FETCH]
    body = read_response_head(_OFFSET_FETCH, version, reply)[1]
    answer = decode(OffsetFetchResponse, version, body)
    found = answer.topics[0].partitions[0] if answer.topics else None
    if answer.error_code or found is None or found.error_code or found.committed_offset != _POSITION:
        raise LoadError(f"a committed position is not there (error {answer.error_code})")


def count_groups(bed: Bed) -> int | None:
    """How many groups the broker lists; None while it does not answer for all of them."""
    version = _VERSIONS[_LIST_GROUPS]
    with connect(bed.host, bed.port) as sock:
        sock.sendall(_frame(_LIST_GROUPS, ListGroupsRequest()))
        answer = decode(ListGroupsResponse, version, read_reply(sock, _LIST_GROUPS, version))
    return None if answer.error_code else len(answer.groups)


def _list_ms(bed: Bed, groups: int) -> float:
    began = time.monotonic()
    if count_groups(bed) != groups:
        raise LoadError(f"the broker does not list {groups} groups")
    return (time.monotonic() - began) * 1e3


CURVE = Curve(
    name="groups",
    title="Consumer groups: one committed position each; 16 connections commit and fetch them",
    x="groups",
    figures=(
        Figure(key="per_s", title="commits", unit="per second"),
        Figure(key="p99_ms", title="p99 of a commit", unit="ms"),
        Figure(key="cpu_us", title="CPU of the broker", unit="µs per commit"),
        Figure(key="fetch_p99_ms", title="p99 of fetching a position", unit="ms"),
        Figure(key="list_ms", title="listing all groups", unit="ms"),
        MEMORY,
        Figure(key="listening_ms", title="restart until it listens", unit="ms"),
        Figure(key="coordinator_ms", title="restart until all groups are back", unit="ms"),
    ),
    sizes=(100, 1_000, 10_000),
    quick_sizes=(100, 1_000),
    measure=measure,
)
