"""The group coordinator of a node: groups, their clock and timer, and the log of their offsets.

The machine of `group.py` decides; here its effects are performed, in one event loop: requests wait for their
answers, one timer wakes the groups, and what must be kept goes to the log before anybody is told of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from tailrace.broker.groups.api import (
    CommitRequest,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.directory import Directory
from tailrace.broker.groups.effects import Store
from tailrace.broker.groups.home import HomeStatus, Resident
from tailrace.broker.groups.limits import GroupConfig, check_assignments, check_group_id, check_join
from tailrace.broker.groups.offsets import write_group, write_group_key
from tailrace.broker.groups.positions import Positions
from tailrace.broker.groups.state import GroupState
from tailrace.broker.internal import Alarm, InternalLog
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.runtime import Clock, Supervisor

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_MEMBER_NAME_CHARS = 200  # of a client id, at the head of the member id that we make


class GroupCoordinator:
    """The groups that this node coordinates. Construct, `start` and use it inside one event loop."""

    def __init__(
        self,
        log: InternalLog,
        *,
        clock: Clock,
        config: GroupConfig | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.config = config or GroupConfig()
        self._clock = clock
        self._new_id = new_id
        on_failure = on_failure or _log_failure
        self._tasks = Supervisor(on_failure)
        self._directory = Directory(
            log,
            clock=clock,
            config=self.config,
            tasks=self._tasks,
            attend=self._perform,
            on_failure=on_failure,
        )
        self._positions = Positions(self._directory, clock=clock, config=self.config)
        self._alarm: Alarm[Resident | None] = Alarm(clock, self.tick)  # None: look for what has expired
        self._tokens = itertools.count(1)
        self._parked: dict[int, asyncio.Future[JoinResult | SyncResult]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<GroupCoordinator of {len(self._directory)} groups, {len(self._parked)} requests wait>"

    # Life

    async def start(self, *, topics: Collection[str] | None = None) -> None:
        """Begin to read the partitions that this node leads; their groups are answered once that is done.

        Where it is told which topics there are, positions in all others are forgotten: a crash has cut their
        deletion short, and a later topic of that name must not get them.
        """
        self._directory.start(topics)
        self._plan_expiry()

    def lead(self, partition: int) -> None:
        """This node leads a partition of the offsets topic from now on; twice is harmless."""
        self._directory.lead(partition)

    def read_again(self, *, topics: Collection[str] | None = None) -> None:
        """The offsets topic is served again: read the partitions that could not be read."""
        self._directory.read_again(topics)

    def resign(self, partition: int) -> None:
        """Another node leads a partition now: whoever waits here is sent there."""
        self._directory.resign(partition)

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        await self._directory.wait_loaded()

    @property
    def is_loaded(self) -> bool:
        """Whether every group that this node coordinates is known."""
        return self._directory.is_loaded

    async def close(self) -> None:
        """Send everybody who waits elsewhere, let what is on its way to the log arrive, and let go."""
        if self._closed:
            return
        self._closed = True
        self._directory.close()
        self._alarm.cancel()
        homes = self._directory.homes
        for home in homes:
            self.resign(home.partition)
        arrivals = [asyncio.ensure_future(home.writer.wait_idle()) for home in homes]
        if arrivals:
            _, late = await asyncio.wait(arrivals, timeout=self.config.commit_timeout_ms / 1000)
            for arrival in late:
                arrival.cancel()
        for home in homes:
            home.writer.close()
        await self._tasks.stop()

    def tick(self) -> None:
        """Let happen what is due by now. The coordinator's own timer calls this."""
        now_ms = self._clock.steady_ms()
        for planned_ms, resident in self._alarm.take_due(now_ms):
            if resident is None:
                self._positions.expire(now_ms)
                self._plan_expiry()
            elif resident.planned_ms == planned_ms:
                resident.planned_ms = None
                resident.group.tick(now_ms)
                self._perform(resident)
                self._directory.forget_if_void(resident)

    # Membership

    async def join(self, request: JoinRequest) -> JoinResult:
        """Become a member, or join again; waits until the rebalance is over."""
        check_join(request, self.config)
        await self._directory.ensure_topic()
        resident = self._directory.find(request.group_id)
        if resident is None and request.member_id:
            raise _unknown_member(request.member_id)
        self._check_room()
        resident = resident or self._directory.create(request.group_id)
        token, answer = self._park(JoinResult)
        try:
            resident.group.join(
                request,
                token=token,
                new_member_id=self._new_member_id(request),
                now_ms=self._clock.steady_ms(),
            )
        except BrokerError:
            del self._parked[token]
            self._directory.forget_if_void(resident)
            raise
        finally:
            self._perform(resident)
        return await self._answered(token, answer)

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Get this member's share; waits until the leader has brought it."""
        check_group_id(request.group_id)
        check_assignments(request, self.config)
        resident = self._find_group_of(request.group_id, request.member_id)
        self._check_room()
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
        resident = self._find_group_of(group_id, member_id)
        resident.group.heartbeat(
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            now_ms=self._clock.steady_ms(),
        )

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Take members out at once. That a group has become empty is durable when this returns."""
        check_group_id(group_id)
        resident = self._directory.find(group_id)
        if resident is None:
            return [LeaveResult(*leaving, ErrorCode.UNKNOWN_MEMBER_ID) for leaving in members]
        try:
            results = resident.group.leave(members, now_ms=self._clock.steady_ms())
        finally:
            self._perform(resident)
        if resident.group.state is GroupState.EMPTY:
            await resident.home.append([], lambda _: None)
        self._directory.forget_if_void(resident)
        return results

    # Offsets

    async def commit_offsets(self, request: CommitRequest) -> dict[TopicPartition, ErrorCode]:
        """Keep positions; answers when they are durable."""
        return await self._positions.commit(request)

    async def commit_transactional(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> dict[TopicPartition, ErrorCode]:
        """Keep positions if the open transaction of a producer commits; answers when they are durable.

        They are sequenced before anything is waited for: what the caller knows of the transaction still
        holds.
        """
        return await self._positions.commit_transactional(
            request, producer_id=producer_id, producer_epoch=producer_epoch
        )

    def transaction_ended(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer was sequenced in this partition of the offsets topic, in this turn."""
        self._directory.transaction_ended(offsets_partition, producer_id, commit=commit)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The kept positions of these partitions, or of all that have one; else NOT_COMMITTED.

        With `require_stable` UNSTABLE where a transaction that is open may move the position (KIP-447).
        """
        return self._positions.fetch(group_id, partitions, require_stable=require_stable)

    def slowest_positions(self, wanted: Callable[[str], bool]) -> dict[TopicPartition, int]:
        """The least position that one of the wanted groups has in each partition, of those that have one."""
        return self._positions.slowest(wanted)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget positions; GROUP_SUBSCRIBED_TO_TOPIC for those that members read."""
        return await self._positions.delete(group_id, partitions)

    async def topic_deleted(self, name: str) -> None:
        """A topic is gone: so are the positions in it, also of a later topic of that name."""
        await self._positions.delete_topic(name)

    # Administration

    async def find_partition(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates this group."""
        check_group_id(group_id)
        await self._directory.ensure_topic()
        return self._directory.partition_of(group_id)

    def list_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """The groups of this node, those in one of `states` if any are named."""
        wanted = {state.casefold() for state in states}
        for home in self._directory.homes:
            if home.status is HomeStatus.LOADING:
                home.check_ready()
        groups = [resident.group for resident in self._directory.residents()]
        return [
            GroupListing(group.group_id, group.roster.protocol_type, str(group.state))
            for group in groups
            if not wanted or group.state.casefold() in wanted
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """A group as an administrator sees it; one that nobody knows is Dead."""
        check_group_id(group_id, may_be_empty=True)
        resident = self._directory.find(group_id)
        if resident is None:
            return GroupDescription(group_id=group_id, state=str(GroupState.DEAD))
        return resident.group.describe()

    async def delete(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """Remove groups that have no members, and their positions."""
        names = list(dict.fromkeys(group_ids))
        errors = await asyncio.gather(*(self._positions.delete_group(name) for name in names))
        return dict(zip(names, errors, strict=True))

    # Performing what a group decided

    def _perform(self, resident: Resident) -> None:
        for effect in resident.group.drain():
            if isinstance(effect, Store):
                self._store(resident, effect)
            else:
                self._answer(effect.token, effect.result)
        self._plan(resident)

    def _store(self, resident: Resident, store: Store) -> None:
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
        """See to it that the group is woken in time; a plan that is too early is left as it is."""
        wake_ms = resident.group.wake_ms
        if wake_ms is None or self._closed:
            return
        if resident.planned_ms is None or wake_ms < resident.planned_ms:
            resident.planned_ms = wake_ms
            self._alarm.plan(wake_ms, resident)

    def _plan_expiry(self) -> None:
        self._alarm.plan(self._clock.steady_ms() + self.config.retention_check_ms, None)

    # Requests that wait

    def _check_room(self) -> None:
        if len(self._parked) >= self.config.parked_max:
            raise BrokerError(
                f"{len(self._parked)} requests wait already", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )

    def _park(self, _: type[T]) -> tuple[int, asyncio.Future[T]]:
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

    def _find_group_of(self, group_id: str, member_id: str) -> Resident:
        resident = self._directory.find(group_id)
        if resident is None:
            raise _unknown_member(member_id)
        return resident

    def _new_member_id(self, request: JoinRequest) -> str:
        name = request.group_instance_id or request.client_id[:_MEMBER_NAME_CHARS] or "member"
        return f"{name}-{self._new_id()}"


def _unknown_member(member_id: str) -> BrokerError:
    return BrokerError(f"member {member_id!r} is not known", code=ErrorCode.UNKNOWN_MEMBER_ID)


def _log_failure(error: BaseException) -> None:
    _logger.error("a task of the group coordinator failed", exc_info=error)
