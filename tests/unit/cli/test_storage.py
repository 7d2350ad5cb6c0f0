"""`tailrace storage` over a small data directory of the real engine: what is shown, and the exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.cli.main import main
from tailrace.model import Epoch, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.runtime import DirectoryLock, SystemClock
from tailrace.server.checkup import check_clock
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.storage.segment.last_seen import read_seen, write_seen

PARTITION = PartitionId(UUID(int=1), 0)
CONFIG = DirectoryConfig(
    journal_file_bytes=64 * 1024, journal_bytes_max=1 << 20, round_bytes_max=16 * 1024, free_bytes_min=0
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with nine records and no readable checkpoint."""

    async def write() -> None:
        storage = await SegmentStorage.open(tmp_path / "data", config=CONFIG)
        log = await storage.create(PARTITION, LogConfig())
        for _ in range(9):
            batch = build_batch([(1_700_000_000_000, b"k", bytes(100), ())])
            log.append(read_batch(batch), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        await storage.close()

    asyncio.run(write())
    for name in ("CHECKPOINT", "CHECKPOINT.copy"):
        (tmp_path / "data" / name).write_bytes(b"nonsense")
    return tmp_path / "data"


async def end_offset(path: Path) -> int:
    storage = await SegmentStorage.open(path, config=CONFIG)
    log = storage.get(PARTITION)
    assert log is not None
    end = log.end_offset
    await storage.close()
    return end


def test_a_checkpoint_is_rebuilt(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "rebuild-checkpoint", str(data)]) == 0
    shown = capsys.readouterr()
    assert "CHECKPOINT.damaged-1" in shown.err
    assert f"{PARTITION}-1" in shown.out
    assert asyncio.run(end_offset(data)) == 9


def test_a_dry_run_writes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "rebuild-checkpoint", str(data), "--dry-run", "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["dry_run"]
    assert [(each["start"], each["end"]) for each in report["partitions"]] == [(0, 9)]
    assert (data / "CHECKPOINT").read_bytes() == b"nonsense"


def test_a_directory_in_use_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = DirectoryLock(str(data))
    assert main(["storage", "rebuild-checkpoint", str(data)]) == 1
    assert "in use by pid" in capsys.readouterr().err
    assert (data / "CHECKPOINT").read_bytes() == b"nonsense"
    lock.release()


def test_a_directory_without_a_log_is_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        assert main(["storage", "rebuild-checkpoint", str(path)]) == 3
        assert "holds no log" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing is made where nothing was"


def test_a_clock_is_confirmed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "CLOCK").write_bytes(write_seen(1_000))
    assert main(["storage", "confirm-clock", str(data), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["last_seen_ms"] == 1_000
    assert read_seen((data / "CLOCK").read_bytes()) == told["confirmed_ms"] > 1_700_000_000_000
    assert main(["storage", "confirm-clock", str(data)]) == 0
    assert "confirmed" in capsys.readouterr().out


def test_the_clock_of_a_directory_in_use_or_without_a_log_is_not_confirmed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = DirectoryLock(str(data))
    assert main(["storage", "confirm-clock", str(data)]) == 1
    assert "in use by pid" in capsys.readouterr().err
    lock.release()
    assert main(["storage", "confirm-clock", str(tmp_path / "missing")]) == 3
    assert not (tmp_path / "missing").exists()


def test_doctor_warns_of_a_clock_that_would_not_be_believed(data: Path) -> None:
    for seen_ms, status in ((1_000, "warning"), (SystemClock().now_ms(), "ok")):
        (data / "CLOCK").write_bytes(write_seen(seen_ms))
        finding = check_clock(data)
        assert finding.status == status
        assert ("confirm-clock" in finding.advice) == (status == "warning")


def test_a_start_names_the_command(data: Path) -> None:
    with pytest.raises(Exception, match="tailrace storage rebuild-checkpoint DIR"):
        asyncio.run(end_offset(data))
