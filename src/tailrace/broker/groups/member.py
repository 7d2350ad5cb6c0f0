"""One member of a group."""

from __future__ import annotations

from tailrace.broker.groups.stored import StoredMember

Protocols = tuple[tuple[str, bytes], ...]


class Member:
    """A member, changed by its group alone.

    At most one of `join_token` and `sync_token` is set: the request of this member that waits for its answer.
    `deadline_ms` is None while a request waits, except for the first join of a new member: it cannot send
    heartbeats yet, so its join itself must not wait for ever.
    """

    __slots__ = (
        "assignment",
        "can_skip_assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = ""
        self.client_host = ""
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: Protocols = ()
        self.assignment = b""
        self.join_token: int | None = None
        self.sync_token: int | None = None
        self.deadline_ms: int | None = None
        self.is_new = True
        self.can_skip_assignment = False  # as its newest join says

    def __repr__(self) -> str:
        waiting = ", joining" if self.join_token is not None else ""
        waiting += ", syncing" if self.sync_token is not None else ""
        return f"<Member {self.member_id}{waiting}>"

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said about a protocol; empty where it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def write(self, protocol_name: str | None) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=self.assignment,
        )

    @classmethod
    def read(cls, stored: StoredMember, protocol_name: str) -> Member:
        """A member as it was kept: it is known to support the protocol in use, and no other."""
        member = cls(stored.member_id, stored.group_instance_id)
        member.client_id = stored.client_id
        member.client_host = stored.client_host
        member.session_timeout_ms = stored.session_timeout_ms
        member.rebalance_timeout_ms = stored.rebalance_timeout_ms
        member.protocols = ((protocol_name, stored.subscription),)
        member.assignment = stored.assignment
        member.is_new = False
        return member
