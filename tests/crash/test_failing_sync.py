"""A sync fails, once: no acknowledgement follows, the directory is fenced, a restart has what was promised.

First with a disk that fails each sync in turn and, like a kernel, drops the pages without a word; then with
strace, which makes the system call itself fail.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace.model import Epoch, StorageError
from tailrace.storage import Fsync
from tailrace.storage.segment import SegmentStorage
from tailrace.testing.faults import LOG_CONFIG, BatchSource, Ledger, WriterProcess, small_directory
from tailrace.testing.faults.disk import DirectDisk, FaultyDisk
from tailrace.testing.faults.writer import report_found, write_all

_DEADLINE_S = 60
_LIFE_S = 120
_TURNS = 6
_LIVES = 3
_ATTEMPTS = 8
_KINDS = {".journal", ".log", ".index", ".timeindex", ".tmp", "journal/", "/"}
"""Files and directories that are synced."""


async def live(path: Path, ledger: Ledger, *, seed: int, fail_sync_at: int, fsync: str) -> FaultyDisk:
    """Write until the sync fails, and see that nothing goes on after it."""
    disk = FaultyDisk(DirectDisk(str(path)), fail_sync_at=fail_sync_at)
    storage = SegmentStorage(disk, str(path), config=small_directory(Fsync.parse(fsync)))
    ledger.begin_life()
    durable: dict[int, int] = {}
    disk.on_failure = lambda: durable.update(
        {life: log.durable_offset for life, log in storage.directory.logs.items()}
    )
    try:
        await storage.start()
    except StorageError as error:
        ledger.observe(f"failed {error}")
    else:
        await write_until_failure(storage, ledger, disk, seed=seed)
        if disk.failed_path is not None:
            await check_fenced(storage, durable)
        await storage.close()
    assert disk.failed_path not in disk.syncs_after_failure, f"{disk.failed_path} was synced again"
    return disk


async def write_until_failure(
    storage: SegmentStorage, ledger: Ledger, disk: FaultyDisk, *, seed: int
) -> None:
    try:
        await report_found(storage, ledger.observe)
        await write_all(storage, random.Random(seed), epoch=0, turns=_TURNS, report=ledger.observe)
    except StorageError as error:
        ledger.observe(f"failed {error}")
        if disk.failed_path is None:
            raise  # no sync has failed


async def check_fenced(storage: SegmentStorage, durable: dict[int, int]) -> None:
    failure = await asyncio.wait_for(storage.wait_failed(), _DEADLINE_S)
    assert isinstance(failure, StorageError)
    source = BatchSource(random.Random(0))
    for log in storage.logs():
        assert log.durable_offset <= durable.get(log.life, 0), f"{log} went on after the failed sync"
        with pytest.raises(StorageError):
            log.append(source.draw(), leader_epoch=Epoch(0))
        with pytest.raises(StorageError):
            await asyncio.wait_for(log.trim(log.durable_offset), _DEADLINE_S)
    for log in storage.logs():
        with pytest.raises(StorageError):
            await asyncio.wait_for(storage.create(log.partition_id, LOG_CONFIG), _DEADLINE_S)


async def fail_and_restart(path: Path, *, seed: int, fail_sync_at: int, lost: bool, fsync: str) -> str | None:
    """The path of the file whose sync failed; None if there were not so many syncs."""
    ledger = Ledger()
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    disk = await live(path, ledger, seed=seed, fail_sync_at=fail_sync_at, fsync=fsync)
    if lost:
        await disk.lose()
    ledger.begin_life()
    storage = await SegmentStorage.open(path, config=small_directory(Fsync.parse(fsync)))
    await report_found(storage, ledger.observe)
    await storage.close()
    return disk.failed_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fsync", "lost"),
    [("commit", True), ("commit", False), ("interval:5", False)],  # what is loose may be lost with the pages
)
def test_any_failed_sync_ends_the_directory_and_loses_nothing(
    fast_path: Path, seed: int, fsync: str, lost: bool
) -> None:
    async def scenario(seed: int) -> set[str]:
        failed: set[str] = set()
        for fail_sync_at in range(1, 10_000):
            async with asyncio.timeout(_LIFE_S):  # whoever waits must be told, too
                path = await fail_and_restart(
                    fast_path / "data", seed=seed, fail_sync_at=fail_sync_at, lost=lost, fsync=fsync
                )
            if path is None:
                break
            failed.add(Path(path).suffix or path)
        return failed

    failed: set[str] = set()
    for attempt in range(_ATTEMPTS):  # which sync is the n-th depends on the moment: a kind may be missed
        failed |= asyncio.run(scenario(seed + attempt))
        if failed >= _KINDS:
            break
    assert failed >= _KINDS, failed


@pytest.fixture
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    return found


SYNC_CALL = re.compile(r"^(?P<thread>\d+) +(?:fdatasync|fsync)\(\d+<(?P<path>[^>]*)>")
SYNC_RETURN = re.compile(r"^(?P<thread>\d+) .*\(INJECTED\)$")


@dataclass(slots=True)
class Sync:
    path: str
    injected: bool = False


def syncs_of(trace: str) -> list[Sync]:
    """Every sync in order of its call; where threads sync at once, a call and its return are lines apart."""
    syncs: list[Sync] = []
    latest: dict[str, Sync] = {}
    for line in trace.splitlines():
        if called := SYNC_CALL.search(line):
            sync = latest[called["thread"]] = Sync(called["path"])
            syncs.append(sync)
        if failed := SYNC_RETURN.search(line):
            latest[failed["thread"]].injected = True
    return syncs


def test_a_failed_sync_is_found_whether_or_not_threads_sync_at_once() -> None:
    alone = "7  fdatasync(3</d/a>) = -1 EIO (Input/output error) (INJECTED)"
    apart = (
        "7  fdatasync(3</d/a> <unfinished ...>\n8  fsync(4</d/b>) = 0\n"
        "7  <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)"
    )
    assert syncs_of(alone) == [Sync("/d/a", injected=True)]
    assert syncs_of(apart) == [Sync("/d/a", injected=True), Sync("/d/b")]


@pytest.mark.slow
def test_a_failing_system_call_ends_the_writer(tmp_path: Path, seed: int, strace: str) -> None:
    rng, ledger, failures = random.Random(seed), Ledger(), 0
    for life in range(_LIVES):
        trace = tmp_path / f"trace-{life}"
        inject = f"--inject=fdatasync:error=EIO:when={rng.randint(1, 60)}"
        under = (strace, "-f", "-qq", "-y", f"--output={trace}", "--trace=fdatasync,fsync", inject)
        options = (f"--seed={rng.getrandbits(32)}", "--turns=400", f"--epoch={life * 10_000}")
        with WriterProcess(tmp_path / "data", ledger, *options, under=under) as writer:
            code = writer.wait()
            assert code in (3, 4), writer.last_words()
        syncs = syncs_of(trace.read_text())
        failed = next(place for place, sync in enumerate(syncs) if sync.injected)
        failures += 1
        assert syncs[failed].path not in [sync.path for sync in syncs[failed + 1 :]], "it was synced again"
        with WriterProcess(tmp_path / "data", ledger, "--turns=0") as writer:
            assert writer.wait() == 0, writer.last_words()
    assert failures == _LIVES
