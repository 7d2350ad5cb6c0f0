"""One consumer group, as the gate hands it out: every request about it, and about no other group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tailrace.broker.groups.api import (
    CommitRequest,
    CommittedOffset,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.model import ErrorCode, TopicPartition
from tailrace.security.audit import GROUP_OFFSETS, Change


class GroupHandle:
    """The group of one id, whether or not it exists yet."""

    __slots__ = ("_changing", "_coordinator", "id")

    def __init__(
        self, coordinator: GroupCoordinator, group_id: str, *, changing: Callable[[str, str], Change]
    ) -> None:
        """`changing` puts what an administrator does into the audit log."""
        self._coordinator = coordinator
        self._changing = changing
        self.id = group_id

    def __repr__(self) -> str:
        return f"<GroupHandle {self.id}>"

    async def join(self, request: JoinRequest) -> JoinResult:
        """Become a member, or join again; waits until the rebalance is over."""
        assert request.group_id == self.id
        return await self._coordinator.join(request)

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Get this member's share; waits until the leader has brought it."""
        assert request.group_id == self.id
        return await self._coordinator.sync(request)

    def heartbeat(self, *, generation_id: int, member_id: str, group_instance_id: str | None = None) -> None:
        """A member lives. REBALANCE_IN_PROGRESS asks it to join again."""
        self._coordinator.heartbeat(
            self.id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
        )

    async def leave(self, members: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Take members out at once."""
        return await self._coordinator.leave(self.id, members)

    async def commit_offsets(self, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """Keep positions; answers when they are durable."""
        assert request.group_id == self.id
        if request.member_id or request.generation_id >= 0:
            return await self._coordinator.commit_offsets(request)
        with self._changing(GROUP_OFFSETS, f"group {self.id!r}") as change:
            codes = await self._coordinator.commit_offsets(request)
            change.code = next((code for code in codes.values() if code), ErrorCode.NONE)
            return codes

    async def commit_transactional(
        self,
        member: str,
        generation: int,
        instance: str | None,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """Keep positions if the open transaction of a producer commits; answers when they are durable.

        They are sequenced before anything is waited for. So a caller that has just been told by the
        coordinator of the transaction that the offsets partition of this group is in it need not ask again.
        """
        request = CommitRequest(
            group_id=self.id,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            offsets=offsets,
        )
        return await self._coordinator.commit_transactional(
            request, producer_id=producer_id, producer_epoch=producer_epoch
        )

    def fetch_offsets(
        self, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The kept positions of these partitions, or of all that have one; else NOT_COMMITTED.

        With `require_stable` UNSTABLE where a transaction that is open may move the position (KIP-447).
        """
        return self._coordinator.fetch_offsets(self.id, partitions, require_stable=require_stable)

    async def delete_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Forget positions; GROUP_SUBSCRIBED_TO_TOPIC for those that members read."""
        with self._changing("group.offsets.delete", f"group {self.id!r}") as change:
            codes = await self._coordinator.delete_offsets(self.id, partitions)
            change.code = next((code for code in codes.values() if code), ErrorCode.NONE)
            return codes

    def describe(self) -> GroupDescription:
        """The group as an administrator sees it; an unknown one is Dead."""
        return self._coordinator.describe(self.id)

    async def delete(self) -> ErrorCode:
        """Remove the group and its positions; NON_EMPTY_GROUP while it has members."""
        with self._changing("group.delete", f"group {self.id!r}") as change:
            change.code = code = (await self._coordinator.delete([self.id]))[self.id]
            return code

    async def find_partition(self) -> int:
        """The partition of the offsets topic whose leader coordinates this group."""
        return await self._coordinator.find_partition(self.id)
