"""The memory engine beyond the conformance suite: what it refuses, and what it forgets."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from tailrace.model import Epoch, PartitionExists, PartitionId, UnknownPartition
from tailrace.records import build_batch, read_batch
from tailrace.storage import LogConfig, StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock

FIRST = PartitionId(UUID(int=1), 0)
SECOND = PartitionId(UUID(int=1), 1)


def test_it_implements_the_port_with_a_clock_of_its_own() -> None:
    engine: StorageEngine = MemoryStorage()
    assert not engine.durable


def test_creating_what_is_there_is_refused() -> None:
    async def scenario() -> None:
        engine = MemoryStorage()
        log = await engine.create(FIRST, LogConfig())
        with pytest.raises(PartitionExists, match="already"):
            await engine.create(FIRST, LogConfig())
        assert engine.get(FIRST) is log

    asyncio.run(scenario())


def test_what_is_not_there_is_neither_deleted_nor_configured() -> None:
    async def scenario() -> None:
        engine = MemoryStorage()
        await engine.create(FIRST, LogConfig())
        with pytest.raises(UnknownPartition, match="does not exist"):
            await engine.delete(SECOND)
        with pytest.raises(UnknownPartition, match="does not exist"):
            engine.configure(SECOND, LogConfig())

    asyncio.run(scenario())


def test_a_closed_log_is_forgotten() -> None:
    async def scenario() -> None:
        engine = MemoryStorage()
        log = await engine.create(FIRST, LogConfig())
        await log.close()
        assert engine.get(FIRST) is None
        assert engine.logs() == []
        assert (await engine.create(FIRST, LogConfig())).end_offset == 0

    asyncio.run(scenario())


def test_maintaining_evicts_in_every_log() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        engine = MemoryStorage(clock=clock)
        logs = [
            await engine.create(partition_id, LogConfig(options={"memory.ttl.ms": 10}))
            for partition_id in (FIRST, SECOND)
        ]
        for log in logs:
            log.append(read_batch(build_batch([(clock.now_ms(), None, b"v", ())])), leader_epoch=Epoch(0))
        clock.advance(10)
        await engine.maintain()
        assert [log.start_offset for log in logs] == [0, 0]
        clock.advance(1)
        await engine.maintain()
        assert [log.start_offset for log in logs] == [1, 1]

    asyncio.run(scenario())


def test_it_says_how_it_is() -> None:
    async def scenario() -> None:
        engine = MemoryStorage()
        await engine.create(FIRST, LogConfig())
        assert repr(engine) == "<MemoryStorage 1 logs>"
        await engine.close()
        assert repr(engine) == "<MemoryStorage closed>"

    asyncio.run(scenario())
