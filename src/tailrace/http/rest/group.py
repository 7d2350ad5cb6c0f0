"""/api/v1/consumer-groups: who reads, how far everybody has come, and the end of a group.

Moving a group is in `group_reset`. A partition shows up when the group has committed an offset for it, or
when a member reads it; only what was committed has a lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.groups.api import NOT_COMMITTED, CommittedOffset, GroupDescription, MemberDescription
from tailrace.http.error import Code
from tailrace.http.older_name import older_name_of
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.model.offset_reset import count_lag
from tailrace.model.operation import Operation as AclOperation
from tailrace.model.operation import Resource, ResourceKind
from tailrace.wire.kafka.assignor import read_assignment

_BREATH_ROWS = 500  # offsets that are looked up before the loop may do something else

_DEAD = "Dead"
_MESSAGES = {
    ErrorCode.NON_EMPTY_GROUP: "group {group} has members. Stop its consumers first",
    ErrorCode.GROUP_ID_NOT_FOUND: "group {group} does not exist",
}


class AssignedPartition(msgspec.Struct, frozen=True):
    """A partition that a member reads."""

    topic: str
    partition: int


class MemberView(msgspec.Struct, frozen=True):
    """One member; it has partitions once the group has agreed on who reads what."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[AssignedPartition]


class OffsetView(msgspec.Struct, frozen=True):
    """How far a group is in a partition; null is what cannot be told."""

    topic: str
    partition: int
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None  # who reads it
    metadata: str


class GroupView(msgspec.Struct, frozen=True):
    """A group in the list."""

    name: str
    state: str  # Empty, PreparingRebalance, CompletingRebalance, Stable
    protocol: str  # how partitions are shared out: range, roundrobin, ...; "" while nobody has agreed on one
    member_count: int
    topics: list[str]
    lag: int  # over all its topics
    lag_by_topic: dict[str, int | None]  # null where nothing was committed, or this node cannot tell
    group: Annotated[str, older_name_of("name")]
    members: Annotated[int, older_name_of("member_count")]


class GroupList(msgspec.Struct, frozen=True):
    """All groups, by name."""

    groups: list[GroupView]


class OffsetList(msgspec.Struct, frozen=True):
    """How far a group is in every partition that it has to do with."""

    offsets: list[OffsetView]


class GroupDetail(msgspec.Struct, frozen=True):
    """A group with its members and offsets."""

    name: str
    state: str
    protocol_type: str
    protocol: str
    member_count: int
    members: list[MemberView]
    lag: int
    offsets: list[OffsetView]
    group: Annotated[str, older_name_of("name")]


# ---- handlers


async def list_groups(call: Call[NoQuery, NoBody]) -> GroupList:
    shown: list[GroupView] = []
    rows = 0
    for listing in sorted(call.access.groups(AclOperation.DESCRIBE)):
        try:
            described = call.access.group(listing.group_id, AclOperation.DESCRIBE).describe()
            offsets = view_offsets(call.access, described)
        except BrokerError:  # gone since it was listed, or moving to another node
            continue
        if described.state != _DEAD:
            shown.append(_view(described, offsets))
        rows += len(offsets)
        if rows >= _BREATH_ROWS:
            rows = 0
            await asyncio.sleep(0)
    return GroupList(groups=shown)


async def get_group(call: Call[NoQuery, NoBody]) -> GroupDetail:
    described = known_group(call.access, call.params["group"])
    offsets = view_offsets(call.access, described)
    return GroupDetail(
        name=described.group_id,
        state=described.state,
        protocol_type=described.protocol_type,
        protocol=described.protocol_name,
        member_count=len(described.members),
        members=[_view_member(each) for each in described.members],
        lag=_sum_lag(offsets),
        offsets=offsets,
        group=described.group_id,
    )


async def list_offsets(call: Call[NoQuery, NoBody]) -> OffsetList:
    described = known_group(call.access, call.params["group"])
    return OffsetList(offsets=view_offsets(call.access, described))


async def delete_group(call: Call[NoQuery, NoBody]) -> None:
    group = call.params["group"]
    code = await call.service.in_time(call.access.group(group, AclOperation.DELETE).delete())
    if code:
        message = _MESSAGES.get(code, "group {group} cannot be deleted: {code}")
        raise BrokerError(message.format(group=group, code=code.name), code=code)


# ---- for other handlers too


def known_group(access: Access, group: str) -> GroupDescription:
    """The group; GROUP_NOT_FOUND if there is none."""
    described = access.group(group, AclOperation.DESCRIBE).describe()
    if described.state == _DEAD:
        code = ErrorCode.GROUP_ID_NOT_FOUND
        raise BrokerError(_MESSAGES[code].format(group=group), code=code)
    return described


def view_offsets(access: Access, described: GroupDescription) -> list[OffsetView]:
    """What was committed and what members read, by topic and partition.

    Topics that the session may not describe are left out, as OffsetFetch leaves them out.
    """
    committed = access.group(described.group_id, AclOperation.DESCRIBE).fetch_offsets(None)
    readers = {target: each.member_id for each in described.members for target in assigned_to(each)}
    return [
        _view_offset(access, target, committed.get(target, NOT_COMMITTED), readers.get(target))
        for target in sorted({*committed, *readers})
        if access.allows(AclOperation.DESCRIBE, Resource(ResourceKind.TOPIC, target.topic))
    ]


def assigned_to(member: MemberDescription) -> list[TopicPartition]:
    """What a member reads; nothing where its bytes are of somebody else's protocol."""
    try:
        return sorted(read_assignment(member.assignment))
    except ProtocolError:  # Kafka Connect's, for one
        return []


def _extent_of(access: Access, target: TopicPartition) -> tuple[int, int] | None:
    """Start and end of a partition; None where this node cannot tell."""
    try:
        partition = access.partition(target, AclOperation.DESCRIBE)
        return partition.start_offset, partition.high_watermark
    except BrokerError:  # deleted, led elsewhere, or its log is missing
        return None


def _view_offset(
    access: Access, target: TopicPartition, committed: CommittedOffset, reader: str | None
) -> OffsetView:
    start, end = _extent_of(access, target) or (None, None)
    offset = committed.offset if committed.offset >= 0 else None
    lag = None
    if offset is not None and start is not None and end is not None:
        lag = count_lag(committed=offset, start=start, end=end)
    return OffsetView(
        topic=target.topic,
        partition=target.partition,
        committed=offset,
        start_offset=start,
        end_offset=end,
        lag=lag,
        member_id=reader,
        metadata=committed.metadata,
    )


def _view(described: GroupDescription, offsets: Iterable[OffsetView]) -> GroupView:
    return GroupView(
        name=described.group_id,
        state=described.state,
        protocol=described.protocol_name,
        member_count=len(described.members),
        topics=sorted({each.topic for each in offsets}),
        lag=_sum_lag(offsets),
        lag_by_topic=_lag_by_topic(offsets),
        group=described.group_id,
        members=len(described.members),
    )


def _lag_by_topic(offsets: Iterable[OffsetView]) -> dict[str, int | None]:
    lags: dict[str, int | None] = {}
    for each in offsets:
        known = lags.setdefault(each.topic, None)
        if each.lag is not None:
            lags[each.topic] = (known or 0) + each.lag
    return lags


def _view_member(member: MemberDescription) -> MemberView:
    return MemberView(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        instance_id=member.group_instance_id,
        partitions=[AssignedPartition(*target) for target in assigned_to(member)],
    )


def _sum_lag(offsets: Iterable[OffsetView]) -> int:
    return sum(each.lag or 0 for each in offsets)


GROUPS = "/api/v1/consumer-groups"
GROUP = f"{GROUPS}/{{group:path}}"  # a group's name may have slashes in it
FAILS = (Code.GROUP_NOT_FOUND, Code.BROKER_NOT_AVAILABLE)

OPERATIONS = (
    Operation(
        method="GET",
        path=GROUPS,
        name="listGroups",
        tag="groups",
        summary="All consumer groups, with their lag",
        handler=list_groups,
        answer=GroupList,
        fails=(Code.BROKER_NOT_AVAILABLE,),
    ),
    Operation(
        method="GET",
        path=f"{GROUP}/offsets",
        name="listGroupOffsets",
        tag="groups",
        summary="How far a group is in every partition",
        handler=list_offsets,
        answer=OffsetList,
        fails=FAILS,
    ),
    Operation(
        method="GET",
        path=GROUP,
        name="getGroup",
        tag="groups",
        summary="A group with its members and offsets",
        handler=get_group,
        answer=GroupDetail,
        fails=FAILS,
    ),
    Operation(
        method="DELETE",
        path=GROUP,
        name="deleteGroup",
        tag="groups",
        summary="Delete a group and its offsets",
        doc="409 while it has members.",
        handler=delete_group,
        answer=None,
        status=204,
        fails=FAILS,
    ),
)
