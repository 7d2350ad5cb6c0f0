"""A member of a consumer group: joins, learns its assignment, keeps its session alive, leaves.

    out --join--> joining --sync--> stable --(27, or our own subscription changed)--> must rejoin
     ^                                 |
     |---- 22, 25, 82, or too slow ----|

The protocol is the eager one: a member gives up everything before it joins again. `join` runs as one task
whatever polls its owner makes meanwhile; the heartbeat runs beside it and only ever notes that there is
something to do. What to do about it, and when, is the consumer's decision (consumer.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.client.error import ClientError, check, is_retriable
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from tailrace.client.pool import Channel, back_off_s
from tailrace.client.transaction import GroupMetadata
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.wire.kafka import Message
from tailrace.wire.kafka.assignor import (
    ASSIGNORS,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest
from tailrace.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.wire.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_log = logging.getLogger(__name__)

_LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_JOIN_AGAIN = _LOST_MEMBERSHIP | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED}
_STEPS_MAX = 3
_SLACK_S = 5.0  # on top of how long the broker itself may keep a join waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """How a member takes part; the property names of Kafka's clients stand beside each."""

    group: str  # group.id
    instance_id: str | None = None  # group.instance.id
    session_timeout_s: float = 45.0  # session.timeout.ms
    heartbeat_interval_s: float = 3.0  # heartbeat.interval.ms
    poll_interval_max_s: float = 300.0  # max.poll.interval.ms
    strategies: tuple[str, ...] = ("range", "roundrobin")  # partition.assignment.strategy


class Membership:
    """One member of one group."""

    def __init__(self, client: KafkaClient, config: GroupConfig, *, changed: Callable[[], None]) -> None:
        self.config = config
        self.generation = -1
        self.member_id = ""
        self.joined = GroupMetadata(config.group, instance_id=config.instance_id)
        """As which member of which generation the partitions were assigned.

        It stays when the membership is lost: the coordinator then refuses the offsets of a transaction, while
        it would take those of generation -1.
        """
        self.rejoin_needed = True
        self.failure: BrokerError | None = None
        """Why this member can never be one again: another took its instance id, or it is not allowed."""
        self._client = client
        self._channel = Channel(f"member of {config.group}")
        self._changed = changed  # called when there is something new to do
        self._heartbeat: asyncio.Task[None] | None = None
        self._polled_at = asyncio.get_running_loop().time()

    @property
    def stable(self) -> bool:
        return self.generation >= 0 and not self.rejoin_needed

    def polled(self) -> None:
        """Note that the owner still asks for records."""
        self._polled_at = asyncio.get_running_loop().time()

    async def join(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Become part of the next generation; the partitions that this member shall read."""
        await self._stop_heartbeat()
        attempts = 0
        while True:
            self.rejoin_needed = False
            try:
                partitions = await self._join_once(sorted(topics))
                break
            except (BrokerError, ClientError) as error:
                self._note(error)
                again = isinstance(error, BrokerError) and error.code in _JOIN_AGAIN
                if not again and not is_retriable(error):
                    self.rejoin_needed = True
                    raise
                self._client.forget(error)
            # An ordinary join takes up to three steps; what takes more is trouble, and gets time.
            if attempts >= _STEPS_MAX or not again:
                await asyncio.sleep(back_off_s(attempts))
            attempts += 1
        self._heartbeat = asyncio.get_running_loop().create_task(self._beat(), name="heartbeat")
        return partitions

    async def leave(self) -> None:
        """Give the place up, so that the others need not wait for the session to end."""
        await self._stop_heartbeat()
        member_id, self.member_id = self.member_id, ""
        self.generation, self.rejoin_needed = -1, True
        try:
            await self._say_goodbye(member_id)
        finally:
            await self._client.close_channel(self._channel)

    async def _say_goodbye(self, member_id: str) -> None:
        # A static member stays one until its session ends: that is what it is for (KIP-345).
        if not member_id or self.config.instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self.config.group, member_id=member_id, members=[MemberIdentity(member_id=member_id)]
        )
        with contextlib.suppress(BrokerError, ClientError, ProtocolError):
            await self._request(LEAVE_GROUP, request, timeout_s=self.config.heartbeat_interval_s)

    def lost(self) -> None:
        """The coordinator does not count us as a member any more."""
        self.generation, self.member_id, self.rejoin_needed = -1, "", True
        self._changed()

    # ---- joining

    async def _join_once(self, topics: Sequence[str]) -> list[TopicPartition]:
        joined = await self._join(topics)
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id:
            assignments = await self._share_out(joined)
        request = SyncGroupRequest(
            group_id=self.config.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        synced: SyncGroupResponse = await self._request(SYNC_GROUP, request, timeout_s=self._join_timeout_s)
        check(synced.error_code, f"group {self.config.group}")
        self.generation = joined.generation_id
        self.joined = self.joined._replace(generation=joined.generation_id, member_id=joined.member_id)
        return read_assignment(synced.assignment)

    async def _join(self, topics: Sequence[str]) -> JoinGroupResponse:
        metadata = write_subscription(topics)
        request = JoinGroupRequest(
            group_id=self.config.group,
            session_timeout_ms=int(self.config.session_timeout_s * 1000),
            rebalance_timeout_ms=int(self.config.poll_interval_max_s * 1000),
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.config.strategies
            ],
        )
        reply: JoinGroupResponse = await self._request(JOIN_GROUP, request, timeout_s=self._join_timeout_s)
        if reply.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = reply.member_id
        check(reply.error_code, f"group {self.config.group}")
        return reply

    async def _share_out(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The leader's part: who reads what."""
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise ProtocolError(f"the group chose the strategy {joined.protocol_name}, which nobody offered")
        members = {each.member_id: read_subscription(each.metadata) for each in joined.members}
        counts = await self._partition_counts({topic for topics in members.values() for topic in topics})
        shares = assignor(members, counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(share))
            for member, share in shares.items()
        ]

    async def _partition_counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        found = await self._client.metadata(sorted(topics))
        return {name: len(info.partitions) for name, info in found.items() if not info.error}

    @property
    def _join_timeout_s(self) -> float:
        return self.config.poll_interval_max_s + _SLACK_S

    # ---- staying

    async def _beat(self) -> None:
        """Tell the coordinator that we live, until we are told to join again or nobody polls any more."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.config.heartbeat_interval_s)
            if loop.time() - self._polled_at > self.config.poll_interval_max_s:
                _log.warning("leaving group, nobody polled: group=%s", self.config.group)
                self._heartbeat = None  # this very task, which leave() must not wait for
                await self.leave()
                self._changed()
                return
            try:
                await self._beat_once()
            except (BrokerError, ClientError, ProtocolError) as error:
                self._note(error)
                self._client.forget(error)
            if self.rejoin_needed:
                self._changed()

    async def _beat_once(self) -> None:
        request = HeartbeatRequest(
            group_id=self.config.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
        )
        reply = await self._request(HEARTBEAT, request, timeout_s=self.config.session_timeout_s)
        check(reply.error_code, f"group {self.config.group}")

    def _note(self, error: BaseException) -> None:
        """What an error says about our membership."""
        code = error.code if isinstance(error, BrokerError) else None
        if code in _LOST_MEMBERSHIP:
            self.generation, self.rejoin_needed = -1, True
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin_needed = True
        elif isinstance(error, BrokerError) and not is_retriable(error) and code not in _JOIN_AGAIN:
            self.failure = error
            self._changed()

    async def _stop_heartbeat(self) -> None:
        task, self._heartbeat = self._heartbeat, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _request(self, key: int, request: Message, *, timeout_s: float) -> Any:
        return await self._client.request(
            key, request, coordinator=self.config.group, channel=self._channel, timeout_s=timeout_s
        )
