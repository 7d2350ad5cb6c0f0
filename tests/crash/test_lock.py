"""One process per directory: the second is told who the first one is, and a kill leaves no lock behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tailrace.model import StorageError
from tailrace.storage.segment import SegmentStorage
from tailrace.testing.faults import Ledger, WriterProcess, small_directory


async def open_and_close(path: Path) -> None:
    storage = await SegmentStorage.open(path, config=small_directory())
    await storage.close()


def wait_until_open(writer: WriterProcess) -> None:
    assert writer.listen(lambda report: report == "opened"), writer.last_words()


def test_a_directory_in_use_is_refused_and_the_owner_named(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, Ledger()) as owner:
        wait_until_open(owner)
        with pytest.raises(StorageError, match=rf"in use by pid {owner.pid}\b"):
            asyncio.run(open_and_close(tmp_path))
        owner.kill()


def test_a_second_process_ends_with_the_reason(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, Ledger()) as owner:
        wait_until_open(owner)
        second = Ledger()
        with WriterProcess(tmp_path, second) as late:
            assert late.wait() == 4
        assert second.failure is not None
        assert f"in use by pid {owner.pid}." in second.failure
        owner.kill()


def test_a_refused_opening_harms_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    with WriterProcess(tmp_path, ledger) as owner:
        wait_until_open(owner)
        with pytest.raises(StorageError):
            asyncio.run(open_and_close(tmp_path))
        assert owner.listen_for(50), owner.last_words()
        owner.kill()
    with WriterProcess(tmp_path, ledger, "--turns=0") as following:
        assert following.wait() == 0, following.last_words()


def test_the_lock_goes_with_a_killed_owner(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, Ledger()) as owner:
        wait_until_open(owner)
        owner.kill()
    asyncio.run(open_and_close(tmp_path))


def test_the_same_process_is_refused_as_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = await SegmentStorage.open(tmp_path, config=small_directory())
        with pytest.raises(StorageError, match=rf"in use by pid {os.getpid()}\b"):
            await open_and_close(tmp_path)
        await storage.close()
        await open_and_close(tmp_path)

    asyncio.run(scenario())
