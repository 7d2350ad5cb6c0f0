"""Committing, showing and removing the positions of groups, and groups that are nothing but positions.

A commit is answered, and seen by anybody, when its record is durable. Everything that comes for one partition
goes to the log in the order in which it came, so that memory and a later reading of the log agree.

A commit of a transaction is sequenced at once and answered when it is durable. It is seen when the marker of
the transaction is durable (`transaction.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from tailrace.broker.groups.api import (
    NOT_COMMITTED,
    UNSTABLE,
    CommitRequest,
    CommittedOffset,
    OffsetToCommit,
)
from tailrace.broker.groups.committed import CommittedOffsets, Place, Placed
from tailrace.broker.groups.directory import Directory
from tailrace.broker.groups.home import Resident
from tailrace.broker.groups.limits import GroupConfig, check_group_id, metadata_too_large
from tailrace.broker.groups.offsets import write_group_key, write_offset, write_offset_key
from tailrace.broker.groups.state import GroupState
from tailrace.broker.groups.stored import StoredOffset
from tailrace.broker.groups.subscription import CONSUMER_PROTOCOL
from tailrace.broker.internal import Done
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.records import NewRecord
from tailrace.runtime import Clock

_logger = logging.getLogger(__name__)

_TIME_MAX_MS = (1 << 63) - 1


class Positions:
    """The positions of all groups of a directory."""

    def __init__(self, directory: Directory, *, clock: Clock, config: GroupConfig) -> None:
        self._directory = directory
        self._clock = clock
        self._config = config

    async def commit(self, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """Keep positions; answers when they are durable."""
        try:
            check_group_id(request.group_id, may_be_empty=True)
            await self._directory.ensure_topic()
            resident = self._committer(request)
        except BrokerError as refused:
            return dict.fromkeys(request.offsets, refused.code)
        results = self._check_offsets(resident, request)
        accepted = [partition for partition, error in results.items() if not error]
        if accepted:
            error = await self._store(resident, request, accepted)
            results.update(dict.fromkeys(accepted, error))
        self._directory.forget_if_void(resident)
        return results

    async def commit_transactional(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> dict[TopicPartition, ErrorCode]:
        """Keep positions if the open transaction of a producer commits; answers when they are durable.

        They are sequenced before anything is waited for: what the caller knows of the transaction still
        holds.
        """
        try:
            check_group_id(request.group_id)
            resident = self._committer(request, transactional=True)
        except BrokerError as refused:
            return dict.fromkeys(request.offsets, refused.code)
        results = self._check_offsets(resident, request, transactional=True)
        accepted = [partition for partition, error in results.items() if not error]
        if accepted:
            error = await self._pend(
                resident, request, accepted, producer_id=producer_id, producer_epoch=producer_epoch
            )
            results.update(dict.fromkeys(accepted, error))
        self._directory.forget_if_void(resident)
        return results

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The kept positions of these partitions, or of all that have one; else NOT_COMMITTED.

        With `require_stable` UNSTABLE where a transaction that is open may move the position.
        """
        check_group_id(group_id, may_be_empty=True)
        resident = self._directory.find(group_id)
        offsets = CommittedOffsets() if resident is None else resident.offsets
        undecided = offsets.undecided_partitions() if require_stable else set()
        if partitions is None:
            return offsets.all() | dict.fromkeys(undecided, UNSTABLE)
        return {
            partition: UNSTABLE if partition in undecided else offsets.get(partition) or NOT_COMMITTED
            for partition in partitions
        }

    def slowest(self, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        """The least position that one of the wanted groups keeps in each partition."""
        least: dict[TopicPartition, int] = {}
        for resident in self._directory.residents():
            if wanted(resident.group.group_id):
                for partition, kept in resident.offsets.all().items():
                    least[partition] = min(kept.offset, least.get(partition, kept.offset))
        return least

    async def delete(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget positions; GROUP_SUBSCRIBED_TO_TOPIC for those that members read."""
        check_group_id(group_id)
        resident = self._directory.find(group_id)
        if resident is None:
            raise BrokerError(f"group {group_id!r} is not known", code=ErrorCode.GROUP_ID_NOT_FOUND)
        if resident.group.roster and resident.group.roster.protocol_type != CONSUMER_PROTOCOL:
            raise BrokerError(f"group {group_id} has members", code=ErrorCode.NON_EMPTY_GROUP)
        read = resident.group.subscribed_topics()
        results = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if read is None or partition.topic in read
            else ErrorCode.NONE
            for partition in partitions
        }
        gone = [p for p, error in results.items() if not error and p in resident.offsets]
        if gone:
            results.update(dict.fromkeys(gone, await self._remove(resident, gone)))
        return results

    async def delete_topic(self, name: str) -> None:
        """A topic is gone: so are the positions in it, also of a later topic of that name."""
        await self._directory.wait_loaded()
        waits = [
            self._remove(resident, gone)
            for resident in self._directory.residents()
            if (gone := resident.offsets.of_topic(name))
        ]
        errors = [error for error in await asyncio.gather(*waits) if error]
        if errors:
            _logger.warning(
                "offsets of a deleted topic are not removed: topic=%s groups=%d error=%s",
                name,
                len(errors),
                errors[0].name,
            )

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Remove a group that has no members, and its positions."""
        try:
            check_group_id(group_id, may_be_empty=True)
            resident = self._directory.find(group_id)
        except BrokerError as refused:
            return refused.code
        if resident is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if resident.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await resident.home.append(*self._leave(resident))

    def expire(self, now_ms: int) -> None:
        """Begin to remove what is past its time, of groups without members only.

        The tombstones are on their way when this returns: what is committed from now on comes behind them.
        """
        for resident in self._directory.residents():
            group, offsets = resident.group, resident.offsets
            if group.state is not GroupState.EMPTY or resident.is_leaving:
                continue
            expired = offsets.plan_expiry(
                now_ms=now_ms,
                retention_ms=self._config.offsets_retention_ms,
                unused_since_ms=group.state_since_ms,
            )
            if len(expired) == len(offsets) and not group.roster.promises:
                resident.home.put(*self._leave(resident))
            elif expired:
                resident.home.put(*self._forget(resident, expired))

    def _committer(self, request: CommitRequest, *, transactional: bool = False) -> Resident:
        """The group that takes this commit; BrokerError if it may not."""
        if transactional and not self._directory.is_open:
            raise BrokerError("there are no groups yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        resident = self._directory.find(request.group_id)
        if resident is None:
            if request.generation_id >= 0:
                raise BrokerError("the group is not known", code=ErrorCode.ILLEGAL_GENERATION)
            resident = self._directory.create(request.group_id)
        resident.group.check_commit(
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            now_ms=self._clock.steady_ms(),
            transactional=transactional,
        )
        return resident

    def _check_offsets(
        self, resident: Resident, request: CommitRequest, *, transactional: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """What is wrong with each position; the undecided ones of a group have a bound of their own."""
        room = self._config.offsets_max - len(resident.offsets)
        undecided = resident.offsets.undecided + len(request.offsets)
        if transactional and undecided > self._config.offsets_max:
            return dict.fromkeys(request.offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        results = {}
        for partition, wanted in request.offsets.items():
            error = ErrorCode.NONE
            if metadata_too_large(wanted.metadata, self._config):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif partition not in resident.offsets:
                room -= 1
                if room < 0:
                    error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            results[partition] = error
        return results

    async def _store(
        self, resident: Resident, request: CommitRequest, accepted: Iterable[TopicPartition]
    ) -> ErrorCode:
        now_ms, place = self._clock.steady_ms(), Place()
        expires_ms = None
        if request.retention_ms >= 0:
            expires_ms = min(now_ms + request.retention_ms, _TIME_MAX_MS)
        offsets = {
            partition: _stored(request.offsets[partition], now_ms=now_ms, expires_ms=expires_ms)
            for partition in accepted
        }
        try:
            records = _records(request.group_id, offsets, now_ms)
        except BrokerError as refused:
            return refused.code
        resident.offsets.begin(offsets)
        return await resident.home.append(
            records, lambda error: resident.offsets.end(offsets, at=place.at, durable=not error), place.set
        )

    async def _pend(
        self,
        resident: Resident,
        request: CommitRequest,
        accepted: Iterable[TopicPartition],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> ErrorCode:
        now_ms, home = self._clock.steady_ms(), resident.home
        offsets = {
            partition: _stored(request.offsets[partition], now_ms=now_ms, expires_ms=None)
            for partition in accepted
        }
        try:
            records = _records(request.group_id, offsets, now_ms)
        except BrokerError as refused:
            return refused.code

        def sequenced(end: int) -> None:
            placed = {partition: Placed(stored, end) for partition, stored in offsets.items()}
            home.transactions.pend(producer_id, resident, placed)

        return await home.append_transactional(
            records, sequenced, producer_id=producer_id, producer_epoch=producer_epoch
        )

    async def _remove(self, resident: Resident, partitions: Sequence[TopicPartition]) -> ErrorCode:
        return await resident.home.append(*self._forget(resident, partitions))

    def _forget(
        self, resident: Resident, partitions: Sequence[TopicPartition]
    ) -> tuple[list[NewRecord], Done, Callable[[int], None]]:
        """Tombstones of some positions, and what follows once they are durable."""
        place = Place()

        def apply(error: ErrorCode) -> None:
            if not error:
                resident.offsets.remove(partitions, at=place.at)

        return self._tombstones(resident, partitions), apply, place.set

    def _leave(self, resident: Resident) -> tuple[list[NewRecord], Done]:
        """Tombstones of a group and all its positions; it is gone when they are durable."""
        resident.is_leaving = True
        records = self._tombstones(resident, resident.offsets)
        records.append((self._clock.steady_ms(), write_group_key(resident.group.group_id), None, ()))

        def apply(error: ErrorCode) -> None:
            resident.is_leaving = False
            if not error:
                self._directory.forget(resident)

        return records, apply

    def _tombstones(self, resident: Resident, partitions: Iterable[TopicPartition]) -> list[NewRecord]:
        now_ms, group_id = self._clock.steady_ms(), resident.group.group_id
        return [(now_ms, write_offset_key(group_id, partition), None, ()) for partition in partitions]


def _records(group_id: str, offsets: Mapping[TopicPartition, StoredOffset], now_ms: int) -> list[NewRecord]:
    return [
        (now_ms, write_offset_key(group_id, partition), write_offset(stored), ())
        for partition, stored in offsets.items()
    ]


def _stored(wanted: OffsetToCommit, *, now_ms: int, expires_ms: int | None) -> StoredOffset:
    return StoredOffset(
        offset=wanted.offset,
        leader_epoch=wanted.leader_epoch,
        metadata=wanted.metadata or "",
        committed_ms=now_ms,
        expires_ms=expires_ms,
    )
