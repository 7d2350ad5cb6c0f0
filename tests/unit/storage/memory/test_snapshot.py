"""Snapshots of the rings: one moment of all of them, whole or refused, written without holding the loop."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, PartitionId, StorageError
from tailrace.records import build_batch, read_batch, write_marker
from tailrace.storage import LogConfig
from tailrace.storage.memory import MemoryLog, MemoryStorage, Snapshots, snapshot
from tailrace.storage.memory.snapshot_file import (
    BadSnapshot,
    Snapshot,
    framed,
    read_snapshot,
    write_end,
    write_head,
    write_log,
)
from tailrace.testing import FakeClock

FIRST = PartitionId(UUID(int=1), 0)
KEEP = LogConfig(delete=False)
SECOND = PartitionId(UUID(int=2), 3)


def snapshots_in(path: Path, *, interval_ms: int = 60_000) -> Snapshots:
    return Snapshots(path, interval_ms=interval_ms, clock=FakeClock())


async def opened(path: Path) -> MemoryStorage:
    snapshots = snapshots_in(path)
    found = await snapshots.load()
    storage = MemoryStorage(clock=FakeClock(), snapshots=snapshots)
    if found is not None:
        storage.restore(found, known={cut.partition_id for cut in found.logs})
    return storage


def append(log: MemoryLog, *values: bytes, epoch: int = 0, **producer: int | bool) -> None:
    batch = build_batch([(1_000, b"k", value, ()) for value in values], **producer)  # type: ignore[arg-type]
    log.append(read_batch(batch), leader_epoch=Epoch(epoch))


def content(log: MemoryLog) -> bytes:
    found = log.read_nowait(log.start_offset, bytes_max=1 << 30, up_to=log.end_offset)
    return b"".join(bytes(extent.load_nowait() or b"") for extent in found.extents)


async def written(path: Path) -> bytes:
    """A file with two logs, one of which has a producer, an aborted transaction and a trimmed start."""
    storage = await opened(path)
    storage.label(FIRST, cluster_id="c-1", topic="orders")
    log = await storage.create(FIRST, KEEP)
    append(log, b"one", b"two", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = write_marker(7, 0, commit=False, coordinator_epoch=0, timestamp_ms=1_000)
    log.append(marker, leader_epoch=Epoch(1))
    append(log, b"three", epoch=2)
    await log.trim(Offset(1))
    other = await storage.create(SECOND, KEEP)
    append(other, b"other")
    await storage.close()
    return (path / snapshot.SNAPSHOT).read_bytes()


def test_everything_of_a_log_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        await written(tmp_path)
        storage = await opened(tmp_path)
        log, other = storage.get(FIRST), storage.get(SECOND)
        assert log is not None and other is not None
        assert (log.start_offset, log.end_offset, other.end_offset) == (1, 4, 1)
        assert list(log.epochs) == [(0, 1), (1, 2), (2, 3)]
        assert [each.producer_id for each in log.aborted(Offset(0), Offset(4))] == [7]
        assert log.producers.standing(7) is not None
        assert b"other" in content(other) and b"three" in content(log)
        append(log, b"four", epoch=3)
        await storage.close()

    asyncio.run(scenario())


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = asyncio.run(written(tmp_path))
    assert len(read_snapshot(io.BytesIO(data), len(data)).logs) == 2
    for size in range(len(data)):
        with pytest.raises(BadSnapshot):
            read_snapshot(io.BytesIO(data[:size]), size)


def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    data = asyncio.run(written(tmp_path))
    for at in range(len(data)):
        wrong = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        with pytest.raises(BadSnapshot):
            read_snapshot(io.BytesIO(wrong), len(wrong))


def test_bytes_behind_the_end_are_refused(tmp_path: Path) -> None:
    data = asyncio.run(written(tmp_path)) + b"\0"
    with pytest.raises(BadSnapshot, match="1 bytes follow its end"):
        read_snapshot(io.BytesIO(data), len(data))


def test_blocks_that_make_no_sense_are_refused_though_their_checksums_fit() -> None:
    async def one_log() -> MemoryLog:
        log = await MemoryStorage(clock=FakeClock()).create(FIRST, KEEP)
        append(log, b"one")
        append(log, b"two")
        return log

    cut = asyncio.run(one_log()).cut()
    head, log, end = write_head("c", 0), list(write_log(cut)), write_end([cut])
    assert [payload[:1] for payload in log] == [b"L", b"P", b"B"]
    wrong = [
        [],
        [head],
        [log[0]],
        [b"H" + head[1:9].lower() + head[9:], end],
        [head, *log],  # no end
        [head, end],  # the end of another file
        [head, *log, *log, end],
        [head, log[0], log[2], end],
        [head, log[0], log[1], log[2], log[2], end],
        [head, log[0], log[1], end],
        [head, log[0], log[1], log[2][:-1], end],
        [head, log[0], log[1], log[2] + b"\0", end],
        [head, log[0], log[1] + b"\0", log[2], end],
        [head, log[0][:-1], log[1], log[2], end],
        [head, b"X", end],
        [head, b"", end],
    ]
    for payloads in wrong:
        data = b"".join(framed(payload) for payload in payloads)
        with pytest.raises(BadSnapshot):
            read_snapshot(io.BytesIO(data), len(data))
    right = b"".join(framed(payload) for payload in [head, *log, end])
    assert read_snapshot(io.BytesIO(right), len(right)).logs[0].end == 2


def test_a_length_is_believed_only_as_far_as_the_file_goes() -> None:
    data = (0xFFFF_FFF0).to_bytes(4, "big") + bytes(100)
    with pytest.raises(BadSnapshot, match="would take 4294967280 bytes, and 96 follow"):
        read_snapshot(io.BytesIO(data), len(data))


def test_a_damaged_snapshot_is_refused_with_cause_and_fix(tmp_path: Path) -> None:
    data = asyncio.run(written(tmp_path))
    path = tmp_path / snapshot.SNAPSHOT
    path.write_bytes(data[:-5])
    with pytest.raises(StorageError) as caught:
        asyncio.run(opened(tmp_path))
    assert "nothing of it was loaded" in str(caught.value)
    assert f"mv {path} {path}.damaged" in str(caught.value)
    assert path.read_bytes() == data[:-5]


def test_a_snapshot_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended, dropped or trimmed while the file is written does not change what it holds."""

    async def scenario() -> Snapshot:
        storage = await opened(tmp_path)
        log = await storage.create(FIRST, KEEP)
        other = await storage.create(SECOND, KEEP)
        for number in range(50):
            append(log, b"v%d" % number, producer_id=1, producer_epoch=0, base_sequence=number)
            append(other, b"w%d" % number)
        real, changed = snapshot._write_block, asyncio.Event()
        loop = asyncio.get_running_loop()

        def write_and_change(file: object, payload: bytes) -> None:
            if not changed.is_set():
                asyncio.run_coroutine_threadsafe(change(), loop).result()
            real(file, payload)  # type: ignore[arg-type]

        async def change() -> None:
            changed.set()
            for number in range(50, 60):
                append(log, b"v%d" % number, producer_id=1, producer_epoch=0, base_sequence=number)
            await log.trim(Offset(55))
            await other.truncate(Offset(10))
            await storage.delete(SECOND)

        monkeypatch.setattr(snapshot, "_write_block", write_and_change)
        await storage.snapshot()
        assert (log.start_offset, log.end_offset) == (55, 60) and len(content(log)) > 0
        found = await snapshots_in(tmp_path).load()
        assert found is not None
        return found

    first, second = asyncio.run(scenario()).logs
    assert (first.start, first.end, first.count) == (0, 50, 50)
    assert (second.start, second.end, second.count) == (0, 50, 50)
    assert len(first.producers) == 0, "no batch had been dropped when the moment was"


def test_what_a_ring_dropped_before_the_moment_is_known_of_its_producers(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = await opened(tmp_path)
        log = await storage.create(FIRST, KEEP)
        for number in range(10):
            append(log, b"v", producer_id=1, producer_epoch=0, base_sequence=number)
        await log.trim(Offset(9))
        await storage.snapshot()
        append(log, b"v", producer_id=1, producer_epoch=0, base_sequence=10)
        await log.trim(Offset(11))
        restarted = await opened(tmp_path)
        again = restarted.get(FIRST)
        assert again is not None
        repeated = read_batch(
            build_batch([(1_000, b"k", b"v", ())], producer_id=1, producer_epoch=0, base_sequence=8)
        )
        duplicate = again.producers.check(repeated)
        assert duplicate is not None and duplicate.base_offset == 8
        standing = again.producers.standing(1)
        assert standing is not None and standing.next_sequence == 10

    asyncio.run(scenario())


def test_an_unchanged_state_is_not_written_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        snapshots = snapshots_in(tmp_path)
        storage = MemoryStorage(clock=FakeClock(), snapshots=snapshots)
        log = await storage.create(FIRST, KEEP)
        for written in (1, 1, 1):
            await storage.snapshot()
            assert snapshots.written == written
        append(log, b"v")
        await storage.snapshot()
        await storage.close()
        await storage.close()
        assert snapshots.written == 2

    asyncio.run(scenario())


def test_it_is_written_at_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop, replaced = asyncio.get_running_loop(), asyncio.Event()
        real = snapshot._put_in_place

        def put(*arguments: object) -> None:
            real(*arguments)  # type: ignore[arg-type]
            loop.call_soon_threadsafe(replaced.set)

        monkeypatch.setattr(snapshot, "_put_in_place", put)
        snapshots = snapshots_in(tmp_path, interval_ms=1)
        storage = MemoryStorage(clock=FakeClock(), snapshots=snapshots)
        append(await storage.create(FIRST, KEEP), b"v")
        async with asyncio.timeout(30):
            await replaced.wait()
        await storage.close()

    asyncio.run(scenario())
    assert snapshot.load(tmp_path / snapshot.SNAPSHOT) is not None


def test_a_write_that_fails_leaves_the_old_file_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        storage = await opened(tmp_path)
        log = await storage.create(FIRST, KEEP)
        append(log, b"v")
        await storage.snapshot()
        append(log, b"w")
        real = snapshot._write_block

        def fail(file: object, payload: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(snapshot, "_write_block", fail)
        with pytest.raises(StorageError, match="No space left on device"):
            await storage.snapshot()
        assert os.listdir(tmp_path) == [snapshot.SNAPSHOT]
        found = await snapshots_in(tmp_path).load()
        assert found is not None and found.logs[0].end == 1
        with pytest.raises(StorageError, match="No space left on device"):
            await storage.close()
        assert storage.logs() == []
        monkeypatch.setattr(snapshot, "_write_block", real)

    asyncio.run(scenario())


def test_what_a_killed_process_left_is_no_snapshot(tmp_path: Path) -> None:
    data = asyncio.run(written(tmp_path))
    (tmp_path / "rings.snapshot.tmp").write_bytes(data[:20])
    asyncio.run(written_again(tmp_path))
    assert sorted(each.name for each in tmp_path.iterdir()) == [snapshot.SNAPSHOT]


async def written_again(path: Path) -> None:
    storage = await opened(path)
    log = storage.get(FIRST)
    assert log is not None
    append(log, b"more", epoch=5)
    await storage.close()


@pytest.mark.skipif(os.name != "posix", reason="files have no modes here")
def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path))
    assert stat.S_IMODE((tmp_path / snapshot.SNAPSHOT).stat().st_mode) == 0o600


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[bytes]:
        log = await MemoryStorage(clock=FakeClock()).create(FIRST, KEEP)
        for _ in range(1_200):
            append(log, b"v")
        append(log, b"x" * 600_000)
        append(log, b"y" * 600_000)
        return list(write_log(log.cut()))

    blocks = [each for each in asyncio.run(scenario()) if each[:1] == b"B"]
    assert len(blocks) == 4 and max(map(len, blocks)) < 600_000 + (512 << 10)


def test_a_topic_that_is_gone_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        await written(tmp_path)
        found = await snapshots_in(tmp_path).load()
        assert found is not None and found.cluster_id == "c-1"
        storage = MemoryStorage(clock=FakeClock())
        storage.restore(found, known={SECOND})
        assert [log.partition_id for log in storage.logs()] == [SECOND]

    asyncio.run(scenario())
