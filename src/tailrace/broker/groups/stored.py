"""A group and a position as the offsets topic keeps them; values shared by the machine and the codec."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of the last generation that was completed."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # its metadata of the protocol in use
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group that is Stable (it has members) or Empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int  # -1: not known
    members: tuple[StoredMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffset:
    """A position that a group has committed."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int
    expires_ms: int | None = None  # where the client itself said how long to keep it
