"""The oracle of the fault tests, and their faulty disk: they object to what is wrong, and to nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tailrace.runtime import SyncError
from tailrace.testing.faults import FaultyDisk, Ledger
from tailrace.testing.faults.disk import DirectDisk

WRITTEN = ["create 0", "append 0 0 2 aa", "append 0 2 3 bb", "durable 0 2", "append 0 3 4 cc"]


def reopened(*found: str, reports: list[str] = WRITTEN) -> Ledger:
    """What the ledger makes of a history, a crash, and what is found after it."""
    ledger = Ledger()
    for report in reports:
        ledger.observe(report)
    ledger.begin_life()
    for report in found:
        ledger.observe(report)
    ledger.observe("opened")
    return ledger


@pytest.mark.parametrize(
    "found",
    ["found 0 0 2 0:2:aa", "found 0 0 3 0:2:aa 2:3:bb", "found 0 0 4 0:2:aa 2:3:bb 3:4:cc"],
    ids=["acknowledged", "and one more", "and all"],
)
def test_what_was_acknowledged_and_any_continuation_is_right(found: str) -> None:
    assert reopened(found).exact()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([], id="no partition"),
        pytest.param(["found 0 0 0"], id="no batch"),
        pytest.param(["found 0 0 2 0:2:ab"], id="another byte"),
        pytest.param(["found 0 0 4 0:2:aa 3:4:cc"], id="a gap"),
        pytest.param(["found 0 0 5 0:2:aa 2:3:bb 3:4:cc 4:5:dd"], id="a batch nobody wrote"),
        pytest.param(["found 0 1 2 0:2:aa"], id="another start"),
        pytest.param(["found 0 0 2 0:2:aa", "found 1 0 0"], id="a partition nobody created"),
    ],
)
def test_anything_else_is_a_loss(found: list[str]) -> None:
    with pytest.raises(AssertionError, match="is not as it was acknowledged"):
        reopened(*found)


def test_what_was_seen_once_must_stay() -> None:
    ledger = reopened("found 0 0 4 0:2:aa 2:3:bb 3:4:cc")
    ledger.begin_life()
    ledger.observe("found 0 0 3 0:2:aa 2:3:bb")
    with pytest.raises(AssertionError, match="is not as it was acknowledged"):
        ledger.observe("opened")


def test_an_acknowledged_truncation_must_not_come_undone() -> None:
    reports = [*WRITTEN, "truncate 0 1", "durable 0 5"]
    assert reopened("found 0 0 0", reports=reports).exact()
    with pytest.raises(AssertionError, match="is not as it was acknowledged"):
        reopened("found 0 0 2 0:2:aa", reports=reports)


def test_an_acknowledgement_after_a_failure_is_an_error() -> None:
    ledger = Ledger()
    ledger.observe("create 0")
    ledger.observe("failed write or sync /data: Input/output error")
    with pytest.raises(AssertionError, match="acknowledged after the storage failed"):
        ledger.observe("durable 0 1")


def test_a_failed_sync_loses_what_was_written_since_the_one_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FaultyDisk(DirectDisk(str(tmp_path)), fail_sync_at=2)
        file = await disk.create("file")
        await file.write(0, [b"kept"], sync=True)
        await file.write(2, [b"lost and more"])
        with pytest.raises(SyncError):
            await file.sync()
        assert (tmp_path / "file").read_bytes() == b"kelost and more"
        await file.sync()  # succeeds, and brings nothing back
        await disk.lose()
        assert (tmp_path / "file").read_bytes() == b"kept"
        assert disk.syncs_after_failure == ["file"]

    asyncio.run(scenario())
