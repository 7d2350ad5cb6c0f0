"""The group coordinator of a node: groups, their clock and timer, and the log of their offsets.

The machine of `group.py` decides; here its effects are performed. Rules:
- A commit is answered, and seen by anybody, when its record is durable; so is the share of a member.
- A group whose partition is not led here is answered NOT_COORDINATOR, one whose partition is still being read
  COORDINATOR_LOAD_IN_PROGRESS. Nothing else is said about it: a client that hears "unknown" starts afresh.
- Everything that comes for one partition goes to the log in the order in which it came, so that memory and a
  later reading of the log agree.
- The topic is made when the first member or commit comes. Until then there are no groups.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tailrace.broker.groups.alarm import Alarm
from tailrace.broker.groups.api import (
    NOT_COMMITTED,
    CommitRequest,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.committed import CommittedOffsets
from tailrace.broker.groups.effects import Store
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.home import Home, HomeStatus, Resident
from tailrace.broker.groups.limits import GroupConfig, check_group_id, check_join, metadata_too_large
from tailrace.broker.groups.loading import Loaded, load_partition
from tailrace.broker.groups.offsets import write_group, write_group_key, write_offset, write_offset_key
from tailrace.broker.groups.placement import partition_for
from tailrace.broker.groups.ports import OFFSETS_TOPIC, OffsetsLog
from tailrace.broker.groups.state import GroupState
from tailrace.broker.groups.stored import StoredOffset
from tailrace.broker.groups.subscription import CONSUMER_PROTOCOL
from tailrace.broker.groups.writer import OffsetsWriter
from tailrace.model import BrokerError, ErrorCode, StorageError, TopicPartition
from tailrace.records import NewRecord
from tailrace.runtime import Clock, Supervisor

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_MEMBER_NAME_CHARS = 200  # of a client id, at the head of the member id that we make


class GroupCoordinator:
    """The groups that this node coordinates. Construct, `start` and use it inside one event loop."""

    def __init__(
        self,
        log: OffsetsLog,
        *,
        clock: Clock,
        config: GroupConfig | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.config = config or GroupConfig()
        self._log = log
        self._clock = clock
        self._new_id = new_id
        self._tasks = Supervisor(on_failure or _log_failure)
        self._homes: dict[int, Home] = {}
        self._alarm: Alarm[Resident | None] = Alarm(clock, self.tick)
        self._tokens = itertools.count(1)
        self._parked: dict[int, asyncio.Future[JoinResult | SyncResult]] = {}
        self._closed = False

    def __repr__(self) -> str:
        groups = sum(len(home.groups) for home in self._homes.values())
        return f"<GroupCoordinator of {groups} groups in {len(self._homes)} partitions>"

    # Life

    async def start(self) -> None:
        """Begin to read the partitions that this node leads; their groups are answered once that is done."""
        for partition in range(self._log.partitions):
            if self._log.leads(partition):
                self.lead(partition)
        self._plan_check()

    def lead(self, partition: int) -> None:
        """This node leads a partition of the offsets topic from now on; twice is harmless."""
        if partition in self._homes or self._closed:
            return
        home = self._open(partition)
        self._tasks.start(f"load {OFFSETS_TOPIC}-{partition}", self._load(home))

    def resign(self, partition: int) -> None:
        """Another node leads a partition now: whoever waits here is sent there."""
        home = self._homes.pop(partition, None)
        if home is None:
            return
        home.become(HomeStatus.FAILED)
        for resident in home.groups.values():
            resident.group.die(ErrorCode.NOT_COORDINATOR)
            self._perform(resident)

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        for home in list(self._homes.values()):
            await home.wait_loaded()

    async def close(self) -> None:
        """Send everybody who waits elsewhere, let what is on its way to the log arrive, and let go."""
        if self._closed:
            return
        self._closed = True
        self._alarm.cancel()
        homes = list(self._homes.values())
        for home in homes:
            self.resign(home.partition)
        idle = [asyncio.ensure_future(home.writer.wait_idle()) for home in homes]
        if idle:
            _, late = await asyncio.wait(idle, timeout=self.config.commit_timeout_ms / 1000)
            for task in late:
                task.cancel()
        await self._tasks.stop()

    def tick(self) -> None:
        """Let happen what is due by now. The coordinator's own timer calls this."""
        now_ms = self._clock.steady_ms()
        for planned_ms, resident in self._alarm.take_due(now_ms):
            if resident is None:
                self._expire_offsets(now_ms)
                self._plan_check()
            elif resident.planned_ms == planned_ms:
                resident.planned_ms = None
                resident.group.tick(now_ms)
                self._perform(resident)
                self._drop_if_void(resident)

    # Membership

    async def join(self, request: JoinRequest) -> JoinResult:
        """Become a member, or join again; waits until the rebalance is over."""
        check_join(request, self.config)
        await self._ensure_topic()
        resident = self._find(request.group_id)
        if resident is None:
            if request.member_id:
                raise _unknown_member(request.member_id)
            resident = self._create(request.group_id)
        token, answer = self._park(JoinResult)
        name = request.group_instance_id or request.client_id[:_MEMBER_NAME_CHARS] or "member"
        try:
            resident.group.join(
                request,
                token=token,
                new_member_id=f"{name}-{self._new_id()}",
                now_ms=self._clock.steady_ms(),
            )
        except BrokerError:
            del self._parked[token]
            self._drop_if_void(resident)
            raise
        finally:
            self._perform(resident)
        return await self._answered(token, answer)

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Get this member's share; waits until the leader has brought it."""
        check_group_id(request.group_id)
        if any(len(share) > self.config.member_bytes_max for share in request.assignments.values()):
            raise BrokerError(
                f"an assignment is over {self.config.member_bytes_max} bytes", code=ErrorCode.INVALID_REQUEST
            )
        resident = self._member_of(request.group_id, request.member_id)
        token, answer = self._park(SyncResult)
        try:
            resident.group.sync(request, token=token, now_ms=self._clock.steady_ms())
        except BrokerError:
            del self._parked[token]
            raise
        finally:
            self._perform(resident)
        return await self._answered(token, answer)

    def heartbeat(
        self, group_id: str, *, generation_id: int, member_id: str, group_instance_id: str | None = None
    ) -> None:
        """A member lives. REBALANCE_IN_PROGRESS asks it to join again."""
        check_group_id(group_id)
        resident = self._member_of(group_id, member_id)
        try:
            resident.group.heartbeat(
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                now_ms=self._clock.steady_ms(),
            )
        finally:
            self._plan(resident)

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Take members out at once. That a group has become empty is durable when this returns."""
        check_group_id(group_id)
        resident = self._find(group_id)
        if resident is None:
            return [LeaveResult(*leaving, ErrorCode.UNKNOWN_MEMBER_ID) for leaving in members]
        try:
            results = resident.group.leave(members, now_ms=self._clock.steady_ms())
        finally:
            self._perform(resident)
        if resident.group.state is GroupState.EMPTY:
            await self._append(resident.home, [], lambda _: None)
        self._drop_if_void(resident)
        return results

    # Offsets

    async def commit_offsets(self, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """Keep positions; answers when they are durable."""
        try:
            check_group_id(request.group_id, may_be_empty=True)
            await self._ensure_topic()
            resident = self._committer(request)
        except BrokerError as refused:
            return dict.fromkeys(request.offsets, refused.code)
        results = {
            partition: self._check_offset(resident, partition, wanted)
            for partition, wanted in request.offsets.items()
        }
        accepted = [partition for partition, error in results.items() if not error]
        if accepted:
            error = await self._store_offsets(resident, request, accepted)
            results.update(dict.fromkeys(accepted, error))
        return results

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The kept positions of these partitions, or of all that have one; else NOT_COMMITTED."""
        check_group_id(group_id, may_be_empty=True)
        resident = self._find(group_id)
        offsets = CommittedOffsets() if resident is None else resident.offsets
        if partitions is None:
            return offsets.all()
        return {partition: offsets.get(partition) or NOT_COMMITTED for partition in partitions}

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget positions; GROUP_SUBSCRIBED_TO_TOPIC for those that members read."""
        check_group_id(group_id)
        resident = self._find(group_id)
        if resident is None or resident.group.state is GroupState.DEAD:
            raise _unknown_group(group_id)
        group = resident.group
        if group.roster and group.roster.protocol_type != CONSUMER_PROTOCOL:
            raise BrokerError(f"group {group_id} has members", code=ErrorCode.NON_EMPTY_GROUP)
        read = group.subscribed_topics()
        results = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if read is None or partition.topic in read
            else ErrorCode.NONE
            for partition in partitions
        }
        gone = [
            partition for partition, error in results.items() if not error and partition in resident.offsets
        ]
        if gone:
            results.update(dict.fromkeys(gone, await self._remove_offsets(resident, gone)))
        return results

    async def topic_deleted(self, name: str) -> None:
        """A topic is gone: so are the positions in it, also of a later topic of that name."""
        for home in list(self._homes.values()):
            await home.wait_loaded()
            waits = [
                self._remove_offsets(resident, gone)
                for resident in list(home.groups.values())
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

    # Administration

    async def find_partition(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates this group."""
        check_group_id(group_id)
        await self._ensure_topic()
        return partition_for(group_id, self._log.partitions)

    def list_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of this node, those in one of `states` if any are named."""
        wanted = {state.casefold() for state in states}
        listed = []
        for home in self._homes.values():
            home.check_ready()
            listed += [
                GroupListing(
                    resident.group.group_id, resident.group.roster.protocol_type, resident.group.state
                )
                for resident in home.groups.values()
                if not wanted or resident.group.state.casefold() in wanted
            ]
        return listed

    def describe(self, group_id: str) -> GroupDescription:
        """A group as an administrator sees it; one that nobody knows is Dead."""
        check_group_id(group_id, may_be_empty=True)
        resident = self._find(group_id)
        if resident is None:
            return GroupDescription(group_id=group_id, state=str(GroupState.DEAD))
        return resident.group.describe()

    async def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Remove groups that have no members, and their positions."""
        names = list(dict.fromkeys(group_ids))
        errors = await asyncio.gather(*(self._delete(group_id) for group_id in names))
        return dict(zip(names, errors, strict=True))

    # Finding a group

    def _find(self, group_id: str) -> Resident | None:
        """The group, if there is one; BrokerError if this node may not say."""
        if self._closed:
            raise BrokerError("this node is shutting down", code=ErrorCode.NOT_COORDINATOR)
        if not self._log.partitions:
            return None
        resident = self._home_of(group_id).groups.get(group_id)
        if resident is not None and resident.is_leaving:
            raise BrokerError(f"group {group_id} is being removed", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return resident

    def _home_of(self, group_id: str) -> Home:
        partition = partition_for(group_id, self._log.partitions)
        if not self._log.leads(partition):
            self.resign(partition)
            raise BrokerError(
                f"{OFFSETS_TOPIC}-{partition} is not led by this node", code=ErrorCode.NOT_COORDINATOR
            )
        self.lead(partition)
        home = self._homes[partition]
        home.check_ready()
        return home

    def _member_of(self, group_id: str, member_id: str) -> Resident:
        resident = self._find(group_id)
        if resident is None:
            raise _unknown_member(member_id)
        return resident

    def _create(self, group_id: str) -> Resident:
        if sum(len(home.groups) for home in self._homes.values()) >= self.config.groups_max:
            raise BrokerError(
                f"this node has its {self.config.groups_max} groups", code=ErrorCode.POLICY_VIOLATION
            )
        home = self._home_of(group_id)
        group = Group(group_id, now_ms=self._clock.steady_ms(), **self._group_settings())
        resident = home.groups[group_id] = Resident(group, CommittedOffsets(), home)
        return resident

    def _group_settings(self) -> dict[str, int]:
        return {
            "size_max": self.config.group_size_max,
            "initial_rebalance_delay_ms": self.config.initial_rebalance_delay_ms,
        }

    async def _ensure_topic(self) -> None:
        if self._log.partitions or self._closed:
            return
        try:
            async with asyncio.timeout(self.config.commit_timeout_ms / 1000):
                await self._log.ensure()
        except (BrokerError, StorageError, TimeoutError) as error:
            raise BrokerError(
                f"{OFFSETS_TOPIC} cannot be made: {error}", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            ) from error
        for partition in range(self._log.partitions):
            # Nothing can be in a partition that did not exist a moment ago.
            if self._log.leads(partition) and partition not in self._homes and not self._closed:
                self._open(partition).become(HomeStatus.READY)

    # Loading

    def _open(self, partition: int) -> Home:
        writer = OffsetsWriter(
            self._log,
            partition,
            tasks=self._tasks,
            append_bytes_max=self.config.append_bytes_max,
            queued_bytes_max=self.config.queued_bytes_max,
        )
        home = self._homes[partition] = Home(partition, writer)
        return home

    async def _load(self, home: Home) -> None:
        try:
            loaded = await load_partition(self._log, home.partition)
        except (BrokerError, StorageError) as error:
            _logger.error(
                "groups cannot be served: topic=%s partition=%d %s", OFFSETS_TOPIC, home.partition, error
            )
            home.become(HomeStatus.FAILED)
            return
        if self._homes.get(home.partition) is home:
            self._settle(home, loaded)
            home.become(HomeStatus.READY)

    def _settle(self, home: Home, loaded: Loaded) -> None:
        now_ms = self._clock.steady_ms()
        for group_id in loaded.groups.keys() | {key for key, kept in loaded.offsets.items() if kept}:
            stored = loaded.groups.get(group_id)
            if stored is None:
                # Only positions are known: their own times decide how long they are kept.
                group = Group(group_id, now_ms=0, **self._group_settings())
            else:
                group = Group.restore(group_id, stored, now_ms=now_ms, **self._group_settings())
            resident = Resident(group, CommittedOffsets(loaded.offsets.get(group_id)), home)
            home.groups[group_id] = resident
            self._plan(resident)

    # Performing what a group decided

    def _perform(self, resident: Resident) -> None:
        for effect in resident.group.drain():
            if isinstance(effect, Store):
                self._store_group(resident, effect)
            else:
                self._answer(effect.token, effect.result)
        self._plan(resident)

    def _store_group(self, resident: Resident, store: Store) -> None:
        def done(error: ErrorCode) -> None:
            if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                error = ErrorCode.UNKNOWN_SERVER_ERROR  # too many members for one record: no client's mistake
            resident.group.stored(store, error, now_ms=self._clock.steady_ms())
            self._perform(resident)

        try:
            key, value = write_group_key(resident.group.group_id), write_group(store.group)
            resident.home.writer.put([(self._clock.steady_ms(), key, value, ())], done)
        except BrokerError as refused:
            done(refused.code)

    def _plan(self, resident: Resident) -> None:
        wake_ms = resident.group.wake_ms
        if wake_ms is None or self._closed:
            return
        if resident.planned_ms is None or wake_ms < resident.planned_ms:
            resident.planned_ms = wake_ms
            self._alarm.plan(wake_ms, resident)

    def _park(self, _: type[T]) -> tuple[int, asyncio.Future[T]]:
        if len(self._parked) >= self.config.parked_max:
            raise BrokerError(
                f"{len(self._parked)} requests wait already", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        token = next(self._tokens)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._parked[token] = answer  # type: ignore[assignment]  # a token has one kind of answer
        return token, answer

    async def _answered(self, token: int, answer: asyncio.Future[T]) -> T:
        try:
            return await answer
        finally:
            self._parked.pop(token, None)  # the connection may be gone; the group need not know

    def _answer(self, token: int, result: JoinResult | SyncResult | ErrorCode) -> None:
        answer = self._parked.pop(token, None)
        if answer is None or answer.done():
            return
        if isinstance(result, ErrorCode):
            answer.set_exception(BrokerError(f"the group answers {result.name}", code=result))
        else:
            answer.set_result(result)

    # Writing

    async def _append(
        self, home: Home, records: Sequence[NewRecord], apply: Callable[[ErrorCode], None]
    ) -> ErrorCode:
        """Append and wait. `apply` is called when the outcome is known, also if nobody waits any more."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            apply(error)
            if not answer.done():
                answer.set_result(error)

        try:
            home.writer.put(records, done)
        except BrokerError as refused:
            done(refused.code)
        try:
            async with asyncio.timeout(self.config.commit_timeout_ms / 1000):
                return await answer
        except TimeoutError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def _store_offsets(
        self, resident: Resident, request: CommitRequest, accepted: Iterable[TopicPartition]
    ) -> ErrorCode:
        now_ms = self._clock.steady_ms()
        expires_ms = None if request.retention_ms < 0 else now_ms + request.retention_ms
        offsets = {
            partition: _stored_offset(request.offsets[partition], now_ms=now_ms, expires_ms=expires_ms)
            for partition in accepted
        }
        group_id = request.group_id
        records = [
            (now_ms, write_offset_key(group_id, partition), write_offset(stored), ())
            for partition, stored in offsets.items()
        ]
        resident.offsets.begin(offsets)
        return await self._append(
            resident.home, records, lambda error: resident.offsets.end(offsets, durable=not error)
        )

    async def _remove_offsets(self, resident: Resident, partitions: Sequence[TopicPartition]) -> ErrorCode:
        def apply(error: ErrorCode) -> None:
            if not error:
                resident.offsets.remove(partitions)

        return await self._append(resident.home, self._tombstones(resident, partitions), apply)

    def _tombstones(self, resident: Resident, partitions: Iterable[TopicPartition]) -> list[NewRecord]:
        now_ms, group_id = self._clock.steady_ms(), resident.group.group_id
        return [(now_ms, write_offset_key(group_id, partition), None, ()) for partition in partitions]

    # Commits

    def _committer(self, request: CommitRequest) -> Resident:
        """The group that may take this commit."""
        resident = self._find(request.group_id)
        if resident is None:
            if request.generation_id >= 0:
                raise BrokerError("the group is not known", code=ErrorCode.ILLEGAL_GENERATION)
            resident = self._create(request.group_id)
        try:
            resident.group.check_commit(
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                now_ms=self._clock.steady_ms(),
            )
        finally:
            self._plan(resident)
        return resident

    def _check_offset(
        self, resident: Resident, partition: TopicPartition, wanted: OffsetToCommit
    ) -> ErrorCode:
        if metadata_too_large(wanted.metadata, self.config):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if len(resident.offsets) >= self.config.offsets_max and partition not in resident.offsets:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return ErrorCode.NONE

    # Removing groups

    async def _delete(self, group_id: str) -> ErrorCode:
        try:
            check_group_id(group_id, may_be_empty=True)
            resident = self._find(group_id)
        except BrokerError as refused:
            return refused.code
        if resident is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if resident.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return await self._remove_group(resident)

    async def _remove_group(self, resident: Resident) -> ErrorCode:
        """Write tombstones of a group and all its positions; it is gone when they are durable."""
        resident.is_leaving = True
        records = self._tombstones(resident, resident.offsets)
        key = write_group_key(resident.group.group_id)
        records.append((self._clock.steady_ms(), key, None, ()))

        def apply(error: ErrorCode) -> None:
            resident.is_leaving = False
            if not error:
                self._forget(resident)

        return await self._append(resident.home, records, apply)

    def _drop_if_void(self, resident: Resident) -> None:
        """Forget a group that never was one: no members, no generation, nothing kept or coming."""
        group = resident.group
        if group.state is not GroupState.EMPTY or group.generation_id or group.roster.promises:
            return
        if not len(resident.offsets) and not resident.is_leaving:
            self._forget(resident)

    def _forget(self, resident: Resident) -> None:
        resident.group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if resident.home.groups.get(resident.group.group_id) is resident:
            del resident.home.groups[resident.group.group_id]

    def _expire_offsets(self, now_ms: int) -> None:
        """Remove what is past its time, of groups without members only."""
        for home in self._homes.values():
            for resident in list(home.groups.values()):
                if resident.group.state is GroupState.EMPTY and not resident.is_leaving:
                    self._expire_resident(resident, now_ms)

    def _expire_resident(self, resident: Resident, now_ms: int) -> None:
        group, offsets = resident.group, resident.offsets
        expired = offsets.plan_expiry(
            now_ms=now_ms,
            retention_ms=self.config.offsets_retention_ms,
            unused_since_ms=group.state_since_ms,
        )
        if len(expired) == len(offsets) and not group.roster.promises:
            self._tasks.start(f"remove group {group.group_id}", self._remove_group(resident))
        elif expired:
            self._tasks.start(f"expire {group.group_id}", self._remove_offsets(resident, expired))

    def _plan_check(self) -> None:
        if not self._closed:
            self._alarm.plan(self._clock.steady_ms() + self.config.retention_check_ms, None)


def _stored_offset(wanted: OffsetToCommit, *, now_ms: int, expires_ms: int | None) -> StoredOffset:
    return StoredOffset(
        offset=wanted.offset,
        leader_epoch=wanted.leader_epoch,
        metadata=wanted.metadata or "",
        committed_ms=now_ms,
        expires_ms=expires_ms,
    )


def _unknown_member(member_id: str) -> BrokerError:
    return BrokerError(f"member {member_id!r} is not known", code=ErrorCode.UNKNOWN_MEMBER_ID)


def _unknown_group(group_id: str) -> BrokerError:
    return BrokerError(f"group {group_id!r} is not known", code=ErrorCode.GROUP_ID_NOT_FOUND)


def _log_failure(error: BaseException) -> None:
    _logger.error("a task of the group coordinator failed", exc_info=error)
