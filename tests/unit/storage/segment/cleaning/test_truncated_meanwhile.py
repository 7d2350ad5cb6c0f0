"""A truncation that comes when compaction has looked for the last time before its swap."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.storage.segment.cleaning.conftest import Rig, play

from tailrace.model import Offset
from tailrace.storage.segment.successor import Successor


def test_compaction_gives_way_where_its_segment_became_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 100) for _ in range(12))
        flush, cuts = Successor.flush, iter([Offset(1)])

        async def flush_and_cut(self: Successor) -> None:
            await flush(self)
            for offset in cuts:
                await rig.log.truncate(offset)
                await rig.storage.wait_applied()

        monkeypatch.setattr(Successor, "flush", flush_and_cut)
        await rig.storage.maintain()
        assert await rig.offsets() == [0]
        assert not any(path.endswith(".tmp") for path in rig.disk.paths())

    play(scenario)


def test_what_was_appended_after_a_truncation_stays_in_memory_until_it_is_applied() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill((b"k", b"v" * 100) for _ in range(12))
        lock = rig.storage.directory.apply_lock
        held = asyncio.Event()

        async def cut_now(op: str, path: str) -> None:
            if op == "create" and path.endswith(".timeindex.tmp") and not held.is_set():
                held.set()
                await lock.acquire()  # the applier waits
                await rig.log.truncate(Offset(1))
                rig.append((b"new", b"acknowledged"))
                await rig.log.wait_durable(Offset(2))

        rig.disk.before = cut_now
        await rig.storage.maintain()
        assert held.is_set()
        try:
            assert (rig.log.end_offset, rig.log.durable_offset) == (2, 2)
            assert await rig.offsets() == [0, 1]
        finally:
            lock.release()
        await rig.storage.wait_applied()
        assert await rig.offsets() == [0, 1]

    play(scenario)
