"""What the listeners and the group coordinator say to each other: plain values, free of wire types.

`GroupCoordinator` offers, and a handler only translates (what is marked `async` may wait, the rest never do):

    async join(JoinRequest) -> JoinResult
    async sync(SyncRequest) -> SyncResult
    heartbeat(group_id, *, generation_id, member_id, group_instance_id=None) -> None
    async leave(group_id, members: Sequence[LeavingMember]) -> list[LeaveResult]
    async commit_offsets(CommitRequest) -> dict[TopicPartition, ErrorCode]
    async commit_transactional(CommitRequest, *, producer_id, producer_epoch)
        -> dict[TopicPartition, ErrorCode]
    transaction_ended(partition of the offsets topic, producer_id, *, commit) -> None
    fetch_offsets(group_id, partitions: Iterable[TopicPartition] | None, *, require_stable=False)
        -> dict[TopicPartition, CommittedOffset]
    list_groups(*, states: Iterable[str] = ()) -> list[GroupListing]
    describe(group_id) -> GroupDescription
    async delete(group_ids: Iterable[str]) -> dict[str, ErrorCode]
    async delete_offsets(group_id, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]
    async topic_deleted(name) -> None
    async find_partition(group_id) -> int       the partition of the offsets topic whose leader coordinates

Whole-request errors are raised as BrokerError. Three answers carry their errors inside, because the protocol
does: `JoinResult.error` is NONE or MEMBER_ID_REQUIRED (the new id is in `member_id`), `leave` answers per
member, both commits and `delete` answer per item and never raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.model import ErrorCode, TopicPartition

NO_GENERATION = -1
NO_OFFSET = -1


@dataclass(slots=True, kw_only=True)
class JoinRequest:
    """One consumer asks to be a member."""

    group_id: str
    member_id: str = ""  # empty: not a member yet
    group_instance_id: str | None = None  # static membership (KIP-345), JoinGroup v5+
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1  # -1, as for JoinGroup v0: the session timeout serves
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]  # (name, metadata), the preferred one first
    requires_member_id: bool = False  # JoinGroup v4+: an empty id is answered MEMBER_ID_REQUIRED (KIP-394)
    can_skip_assignment: bool = False  # JoinGroup v9+: it may be told to lead without sharing out (KIP-814)


class JoinedMember(NamedTuple):
    """A member as the leader needs it to share out the partitions."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes  # of the chosen protocol


@dataclass(slots=True, kw_only=True)
class JoinResult:
    """The generation that a member is part of."""

    error: ErrorCode = ErrorCode.NONE  # or MEMBER_ID_REQUIRED, with the new id in `member_id`
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None  # JoinGroup before v7 writes "" for None
    leader: str = ""
    member_id: str
    members: Sequence[JoinedMember] = ()  # only the leader gets them
    skips_assignment: bool = False  # the leader is to leave the shares as they are


@dataclass(slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its share; the leader brings everybody's."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None  # SyncGroup v5+
    protocol_name: str | None = None  # SyncGroup v5+
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # by member id; empty but for the leader


@dataclass(slots=True, kw_only=True)
class SyncResult:
    """A member's share."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class LeavingMember(NamedTuple):
    """Who leaves: by member id, or by instance id alone (an administrator removes a static member)."""

    member_id: str = ""
    group_instance_id: str | None = None


class LeaveResult(NamedTuple):
    """The answer to one LeavingMember; LeaveGroup before v3 makes the only one its error."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class OffsetToCommit(NamedTuple):
    """A position that a consumer wants kept."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


@dataclass(slots=True, kw_only=True)
class CommitRequest:
    """Positions to keep. The caller has checked that the topics exist."""

    group_id: str
    generation_id: int = NO_GENERATION  # -1: somebody who is no member
    member_id: str = ""
    group_instance_id: str | None = None
    retention_ms: int = -1  # OffsetCommit v2-v4; -1: the broker's own
    offsets: Mapping[TopicPartition, OffsetToCommit]


class CommittedOffset(NamedTuple):
    """A kept position; `offset` is -1 where there is none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE  # or UNSTABLE_OFFSET_COMMIT, to those who require a stable one


NOT_COMMITTED = CommittedOffset(NO_OFFSET)
UNSTABLE = CommittedOffset(NO_OFFSET, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
"""A transaction that is open may move the position (KIP-447): ask again."""


class GroupListing(NamedTuple):
    """A line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str  # Empty, PreparingRebalance, CompletingRebalance, Stable, Dead


class MemberDescription(NamedTuple):
    """A member as DescribeGroups shows it; metadata and assignment are empty unless the group is Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(slots=True, kw_only=True)
class GroupDescription:
    """A group as DescribeGroups shows it. A group that nobody knows is Dead and empty, without an error."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""  # empty unless the group is Stable
    members: Sequence[MemberDescription] = ()
