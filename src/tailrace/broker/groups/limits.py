"""Settings and bounds of consumer groups, and the pure checks of what a request may ask for.

Everything that a client can make the coordinator hold has a bound here. Kafka's name of a setting stands
beside it where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.broker.groups.api import JoinRequest, SyncRequest
from tailrace.model import BrokerError, ErrorCode

_DAY_MS = 24 * 3600 * 1000

STRING_BYTES_MAX = 32_000
"""Names end up in records whose strings have 16-bit lengths; this leaves room for what we add to them."""
PROTOCOLS_MAX = 100
"""Assignors that one member may offer; real clients offer one to four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a node's coordinator."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 0  # group.initial.rebalance.delay.ms
    group_size_max: int = 10_000  # group.max.size
    groups_max: int = 100_000  # per node
    parked_max: int = 100_000  # joins and syncs that wait, per node
    member_bytes_max: int = 1 << 20  # protocol metadata of one member, or its assignment
    offsets_max: int = 100_000  # partitions that one group may keep a position of
    offset_metadata_bytes_max: int = 4096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * _DAY_MS  # offsets.retention.minutes
    retention_check_ms: int = 600_000  # offsets.retention.check.interval.ms
    commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms
    append_bytes_max: int = 512 * 1024  # what commits that come together share, well below a batch's limit
    queued_bytes_max: int = 32 << 20  # what may wait for the log, per partition of the offsets topic


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """INVALID_GROUP_ID unless the name can be one. Only members need a name that is not empty."""
    if (not group_id and not may_be_empty) or _bytes_of(group_id) > STRING_BYTES_MAX:
        raise BrokerError(
            f"a group id has 1 to {STRING_BYTES_MAX} bytes, not {_bytes_of(group_id)}",
            code=ErrorCode.INVALID_GROUP_ID,
        )


def check_join(request: JoinRequest, config: GroupConfig) -> None:
    """Refuse a join for what it asks, whatever the group's state."""
    check_group_id(request.group_id)
    shortest, longest = config.session_timeout_ms_min, config.session_timeout_ms_max
    if not shortest <= request.session_timeout_ms <= longest:
        raise BrokerError(
            f"session timeout {request.session_timeout_ms} ms is not within {shortest} to {longest} ms",
            code=ErrorCode.INVALID_SESSION_TIMEOUT,
        )
    if request.group_instance_id == "":
        raise BrokerError("an instance id must not be empty", code=ErrorCode.INVALID_REQUEST)
    names = [request.group_instance_id or "", request.client_id, request.client_host, request.protocol_type]
    names += [name for name, _ in request.protocols]
    if any(_bytes_of(name) > STRING_BYTES_MAX for name in names) or len(request.protocols) > PROTOCOLS_MAX:
        raise BrokerError(
            f"a name over {STRING_BYTES_MAX} bytes, or over {PROTOCOLS_MAX} protocols",
            code=ErrorCode.INVALID_REQUEST,
        )
    if sum(len(metadata) for _, metadata in request.protocols) > config.member_bytes_max:
        raise BrokerError(
            f"a member's protocol metadata is over {config.member_bytes_max} bytes",
            code=ErrorCode.INVALID_REQUEST,
        )


def check_assignments(request: SyncRequest, config: GroupConfig) -> None:
    """INVALID_REQUEST if the leader gives somebody more than a member may hold."""
    if any(len(share) > config.member_bytes_max for share in request.assignments.values()):
        raise BrokerError(
            f"an assignment is over {config.member_bytes_max} bytes", code=ErrorCode.INVALID_REQUEST
        )


def metadata_too_large(metadata: str | None, config: GroupConfig) -> bool:
    """Whether the text that comes with an offset is longer than may be kept."""
    return metadata is not None and _bytes_of(metadata) > config.offset_metadata_bytes_max


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
