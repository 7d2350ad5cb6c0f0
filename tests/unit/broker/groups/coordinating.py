"""A coordinator on a clock that the test moves and a log in memory, and clients of one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

import pytest
from tests import unhurried
from tests.unit.broker.groups.conftest import REBALANCE_MS, SESSION_MS, subscription
from tests.unit.broker.groups.offsets_log import MemoryOffsetsLog

from tailrace.broker.groups import (
    CommitRequest,
    GroupConfig,
    GroupCoordinator,
    JoinRequest,
    JoinResult,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.testing import FakeClock

T = TypeVar("T")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Scene:
    """One node: its log outlives its coordinator."""

    def __init__(self, config: GroupConfig | None = None, *, log: MemoryOffsetsLog | None = None) -> None:
        self.log = log or MemoryOffsetsLog()
        self.clock = FakeClock()
        self.config = config or GroupConfig()
        self.failures: list[BaseException] = []
        self._ids = 0
        self.groups = self._new()

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.log,
            clock=self.clock,
            config=self.config,
            on_failure=self.failures.append,
            new_id=self._new_id,
        )

    def _new_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    async def open(self) -> Scene:
        await self.groups.start()
        await self.groups.wait_loaded()
        return self

    async def restart(self, *, wait: bool = True, topics: Collection[str] | None = None) -> None:
        """The process ends as if killed, and starts again over the same log."""
        await self.groups.close()
        self.groups = self._new()
        await self.groups.start(topics=topics)
        if wait:
            await self.groups.wait_loaded()

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.groups.tick()
        await settle()

    def joining(
        self, member_id: str = "", *, group: str = "g", **fields: Any
    ) -> Coroutine[Any, Any, JoinResult]:
        wanted: dict[str, Any] = {
            "group_id": group,
            "member_id": member_id,
            "client_id": "c",
            "client_host": "/10.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": [("range", subscription("t"))],
        }
        return self.groups.join(JoinRequest(**(wanted | fields)))

    def syncing(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
    ) -> Coroutine[Any, Any, SyncResult]:
        request = SyncRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=assignments or {},
        )
        return self.groups.sync(request)

    async def stable(self, *, group: str = "g", **fields: Any) -> JoinResult:
        """A group of one member, who has the share b"all"."""
        joined = await self.joining(group=group, **fields)
        share = {joined.member_id: b"all"}
        instance = fields.get("group_instance_id")
        await self.syncing(joined.member_id, joined.generation_id, share, group=group, instance=instance)
        return joined

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetToCommit],
        *,
        group: str = "g",
        member: JoinResult | None = None,
        **fields: Any,
    ) -> dict[TopicPartition, ErrorCode]:
        wanted: dict[str, Any] = {
            "group_id": group,
            "offsets": {
                partition: OffsetToCommit(offset) if isinstance(offset, int) else offset
                for partition, offset in offsets.items()
            },
        }
        if member is not None:
            wanted |= {"generation_id": member.generation_id, "member_id": member.member_id}
        return await self.groups.commit_offsets(CommitRequest(**(wanted | fields)))

    def fetched(self, *partitions: TopicPartition, group: str = "g") -> list[int]:
        found = self.groups.fetch_offsets(group, partitions)
        return [found[partition].offset for partition in partitions]

    def beat(self, member: JoinResult, *, group: str = "g", **fields: Any) -> ErrorCode:
        try:
            self.groups.heartbeat(
                group, generation_id=member.generation_id, member_id=member.member_id, **fields
            )
        except BrokerError as refused:
            return refused.code
        return ErrorCode.NONE


async def settle() -> None:
    """Let everything that can go on go on; nothing here waits for a clock."""
    for _ in range(20):
        await asyncio.sleep(0)


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as refused:
        await work
    return refused.value.code


def play(scenario: Callable[[Scene], Awaitable[None]], scene: Callable[[], Scene] = Scene) -> None:
    """Run a scenario in a scene, and leave nothing behind."""

    async def bounded() -> None:
        stage = await scene().open()
        try:
            await asyncio.wait_for(scenario(stage), timeout=120)
        finally:
            stage.log.release_appends()
            stage.log.release_reads()
            await stage.groups.close()
        assert stage.failures == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    unhurried.run(bounded())
