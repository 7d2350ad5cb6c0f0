"""Who belongs to a group: members in the order they came, static instances, and ids that were only given out.

Knows nothing of generations and time beyond the deadlines it is handed. Rules:
- `leader` is a member whenever there are any.
- An instance id belongs to one member at most (KIP-345): `replace` gives it a new member id, and whoever
  still comes with the old one is fenced.
- Every member supports at least one protocol that all the others support too: `check_protocols` refuses who
  would not, before anything is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tailrace.broker.groups.api import JoinedMember, MemberDescription
from tailrace.broker.groups.member import Member
from tailrace.broker.groups.stored import StoredMember
from tailrace.model import BrokerError, ErrorCode


class Roster:
    """The members of one group."""

    __slots__ = (
        "_instances",
        "_members",
        "_promised",
        "_promises_max",
        "_support",
        "leader",
        "protocol_type",
    )

    def __init__(self, *, promises_max: int) -> None:
        self.leader: str | None = None
        self.protocol_type = ""  # of the members there are, or were last; empty: there never were any
        self._members: dict[str, Member] = {}  # in the order in which they came
        self._instances: dict[str, str] = {}  # instance id -> member id, of static members
        self._support: Counter[str] = Counter()  # protocol name -> members who know it
        self._promised: dict[str, int] = {}  # ids given out, not joined yet -> when they expire; oldest first
        self._promises_max = promises_max

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def find_instance(self, instance_id: str | None) -> Member | None:
        """The static member of this name."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member who asks; FENCED_INSTANCE_ID if another holds its instance id, UNKNOWN_MEMBER_ID."""
        if instance_id is not None and (holder := self._instances.get(instance_id)) not in (None, member_id):
            raise BrokerError(
                f"instance {instance_id} is member {holder} now, not {member_id}",
                code=ErrorCode.FENCED_INSTANCE_ID,
            )
        member = self._members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise BrokerError(f"member {member_id!r} is not known", code=ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_protocols(
        self, protocol_type: str, protocols: Sequence[tuple[str, bytes]], *, besides: Member | None = None
    ) -> None:
        """INCONSISTENT_GROUP_PROTOCOL unless these share one with every member, `besides` not counted."""
        names = {name for name, _ in protocols}
        if not self._members:
            fits = bool(protocol_type) and bool(names)
        else:
            own = set() if besides is None else {name for name, _ in besides.protocols}
            others = len(self._members) - (besides is not None)
            shared = (name for name in names if self._support[name] - (name in own) == others)
            fits = protocol_type == self.protocol_type and any(True for _ in shared)
        if not fits:
            raise BrokerError(
                f"{protocol_type!r} with protocols {sorted(names)} does not go with the group's members",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )

    def add(self, member: Member, protocol_type: str) -> None:
        if not self._members:
            self.protocol_type = protocol_type
            self.leader = member.member_id
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self._support.update({name for name, _ in member.protocols})

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._forget_support(member)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """Give a static member another id; it keeps its place, and the lead if it had it."""
        assert old.instance_id is not None and old.instance_id == new.instance_id
        self._members = {
            (new if member is old else member).member_id: (new if member is old else member)
            for member in self
        }
        self._instances[old.instance_id] = new.member_id
        self._forget_support(old)
        self._support.update({name for name, _ in new.protocols})
        if self.leader == old.member_id:
            self.leader = new.member_id

    def set_protocols(self, member: Member, protocols: Sequence[tuple[str, bytes]]) -> None:
        """Take over what a member offers now."""
        self._forget_support(member)
        member.protocols = tuple(protocols)
        self._support.update({name for name, _ in member.protocols})

    def plan_protocol(self) -> str:
        """The protocol of the next generation: each votes for the one it likes best of those all support.

        A tie goes to the one that the longest-standing member likes better.
        """
        shared = {name for name, count in self._support.items() if count == len(self._members)}
        assert shared, "a join that leaves no shared protocol is refused"
        votes = Counter(next(name for name, _ in member.protocols if name in shared) for member in self)
        first = next(iter(self))
        return max((name for name, _ in first.protocols if name in shared), key=lambda name: votes[name])

    def rebalance_timeout_ms(self) -> int:
        """How long to wait for joins: as long as the slowest member asked for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # As others need to see them

    def joined(self, protocol_name: str | None) -> list[JoinedMember]:
        """As the leader gets them."""
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self
        ]

    def describe(self, protocol_name: str | None) -> list[MemberDescription]:
        """As an administrator sees them, with metadata and shares only if a protocol is named."""
        return [
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol_name),
                assignment=b"" if protocol_name is None else member.assignment,
            )
            for member in self
        ]

    def write(self, protocol_name: str | None) -> tuple[StoredMember, ...]:
        """As they are kept."""
        return tuple(member.write(protocol_name) for member in self)

    # Ids that were given out (KIP-394)

    @property
    def promises(self) -> int:
        return len(self._promised)

    def promise(self, member_id: str, deadline_ms: int) -> None:
        """Give out an id. The oldest goes if there are too many: its owner is told to ask again."""
        if len(self._promised) >= self._promises_max:
            del self._promised[next(iter(self._promised))]
        self._promised[member_id] = deadline_ms

    def keep_promise(self, member_id: str) -> bool:
        """Whether this id was given out; it is not any more."""
        return self._promised.pop(member_id, None) is not None

    def expire_promises(self, now_ms: int) -> None:
        for member_id in [key for key, deadline_ms in self._promised.items() if deadline_ms <= now_ms]:
            del self._promised[member_id]

    def clear_promises(self) -> None:
        self._promised.clear()

    def next_deadline_ms(self) -> int | None:
        """The earliest end of a session or of a promise."""
        sessions = [member.deadline_ms for member in self if member.deadline_ms is not None]
        return min([*sessions, *self._promised.values()], default=None)

    def _forget_support(self, member: Member) -> None:
        for name in {name for name, _ in member.protocols}:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]
