"""One transactional id, as the gate hands it out: every request about it, and about no other one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tailrace.broker.groups.api import CommitRequest
from tailrace.broker.groups.handle import GroupHandle
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.partition import Appended, Partition
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.transactions.acknowledging import Acknowledgement, commit, commit_again
from tailrace.broker.transactions.api import Identity, TransactionDescription
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.model import ErrorCode, TopicPartition
from tailrace.records import Batch


class TransactionHandle:
    """The transactional id of one name, whether or not it is known yet."""

    __slots__ = ("_connection", "_coordinator", "_subscriptions", "id")

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        subscriptions: Subscriptions,
        transactional_id: str,
        *,
        connection: int,
    ) -> None:
        self._coordinator = coordinator
        self._subscriptions = subscriptions
        self._connection = connection
        self.id = transactional_id

    def __repr__(self) -> str:
        return f"<TransactionHandle {self.id}>"

    async def init(
        self, *, timeout_ms: int, expected: Identity | None = None, two_phase: bool = False
    ) -> Identity:
        """A producer begins; what its predecessor left open is aborted, but for what has two-phase commit."""
        return await self._coordinator.init(
            self.id, timeout_ms=timeout_ms, expected=expected, two_phase=two_phase
        )

    async def prepare(self, identity: Identity) -> None:
        """The open transaction of a producer has two-phase commit from now on."""
        await self._coordinator.prepare(self.id, identity)

    async def add(self, identity: Identity, partitions: Collection[TopicPartition]) -> None:
        """Partitions take part in the transaction; returns when that is durable."""
        await self._coordinator.add(self.id, identity, partitions)

    async def add_offsets(self, identity: Identity, group: GroupHandle) -> None:
        """The positions of a group take part in the transaction; returns when that is durable."""
        await self.add(identity, [TopicPartition(OFFSETS_TOPIC, await group.find_partition())])

    async def commit_offsets(
        self, identity: Identity, group: GroupHandle, commit: CommitRequest, *, client_version: int
    ) -> dict[TopicPartition, ErrorCode]:
        """Keep positions of a group if the transaction commits; returns when they are durable.

        TransactionRefused if the positions of that group take no part in it.
        """
        partition = TopicPartition(OFFSETS_TOPIC, await group.find_partition())
        self._coordinator.verifier.verify(self.id, identity, partition, client_version=client_version)
        return await group.commit_transactional(  # sequenced in this turn, before anything is waited for
            commit.member_id,
            commit.generation_id,
            commit.group_instance_id,
            commit.offsets,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

    def append(
        self,
        partition: Partition,
        batch: Batch,
        *,
        client_version: int,
        append_time_ms: int | None = None,
        keys_checked: bool = False,
    ) -> Appended:
        """Sequence a transactional batch, verified."""
        return self._coordinator.verifier.append(
            self.id,
            partition,
            batch,
            client_version=client_version,
            append_time_ms=append_time_ms,
            keys_checked=keys_checked,
        )

    async def end(self, identity: Identity, *, commit: bool, client_version: int) -> Identity:
        """Commit or abort; returns the identity with which the producer goes on."""
        return await self._coordinator.end(self.id, identity, commit=commit, client_version=client_version)

    async def commit(self, identity: Identity, acknowledgements: Sequence[Acknowledgement]) -> Identity:
        """Commit, and acknowledge messages with it; returns the identity with which the producer goes on."""
        return await commit(self._coordinator, self._subscriptions, self.id, identity, acknowledgements)

    async def commit_again(self, identity: Identity) -> None:
        """Say once more that a transaction is to commit, of which the answer was lost (`acknowledging`)."""
        await commit_again(self._coordinator, self.id, identity)

    def abandon(self) -> None:
        """Abort what is open: the producer is gone."""
        self._coordinator.abandon(self.id)

    def check_connection(self, *, is_group: bool = False) -> None:
        """ProtocolError if a newer connection has been used for this id: the request came late.

        `is_group` is for requests that clients send to the coordinator of a group.
        """
        self._coordinator.check_connection(self.id, self._connection, is_group=is_group)

    def describe(self) -> TransactionDescription:
        """The transactional id as an administrator sees it; TRANSACTIONAL_ID_NOT_FOUND."""
        return self._coordinator.describe(self.id)

    async def abort(self) -> None:
        """Abort what is open, as an administrator; INVALID_TXN_STATE if nothing is."""
        await self._coordinator.abort(self.id)

    async def find_partition(self) -> int:
        """The partition of the transaction topic whose leader coordinates this id."""
        return await self._coordinator.find_partition(self.id)
