"""The power is cut while a writer runs, on an ext4 of our own: nothing that was acknowledged is lost.

FS_IOC_SHUTDOWN stops the file system without flushing anything, then the writer is killed, and the image is
mounted again: the kernel replays its own journal, and the next writer finds what a machine would find.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace.cluster import SqliteStore
from tailrace.model import TailraceError
from tailrace.testing.faults import Ledger, WriterProcess
from tailrace.testing.faults.mount import LoopFile, Unavailable

_IMAGE_BYTES = 64 << 20
_EPOCHS_PER_LIFE = 10_000


@pytest.fixture
def loop_file(tmp_path: Path) -> LoopFile:
    try:
        file = LoopFile(tmp_path / "image", tmp_path / "mounted", size_bytes=_IMAGE_BYTES)
        with file.mounted():
            pass
    except Unavailable as reason:
        pytest.skip(str(reason))
    return file


def run_until_cut(file: LoopFile, ledger: Ledger, rng: random.Random, *, life: int) -> None:
    """One life: open, compare, write, and lose the power at some moment."""
    with file.mounted() as path:
        options = (f"--seed={rng.getrandbits(32)}", f"--epoch={life * _EPOCHS_PER_LIFE}")
        with WriterProcess(path / "data", ledger, *options) as writer:
            assert writer.listen_for(rng.randint(1, 300)), writer.last_words()
            file.cut_power()
            writer.end()


def cut_again_and_again(file: LoopFile, seed: int, *, cuts: int) -> None:
    rng, ledger = random.Random(seed), Ledger()
    for life in range(cuts):
        run_until_cut(file, ledger, rng, life=life)
    with file.mounted() as path, WriterProcess(path / "data", ledger, "--turns=0") as writer:
        assert writer.wait() == 0, writer.last_words()
    assert ledger.openings == cuts + 1
    assert ledger.exact()


def test_metadata_that_was_committed_outlives_a_power_cut(loop_file: LoopFile) -> None:
    """The first commit creates the file, the second one only appends to SQLite's write-ahead log."""

    async def commit(path: Path) -> None:
        store = SqliteStore(path)
        for number in (1, 2):
            assert await store.commit(checks={}, puts={f"topics/{number}": "{}"}) == number
        loop_file.cut_power()
        with suppress(TailraceError):
            await store.close()

    async def read(path: Path) -> list[str]:
        store = SqliteStore(path)
        try:
            return list((await store.read()).entries)
        finally:
            await store.close()

    with loop_file.mounted() as path:
        asyncio.run(commit(path / "metadata.sqlite"))
    with loop_file.mounted() as path:
        assert asyncio.run(read(path / "metadata.sqlite")) == ["topics/1", "topics/2"]


@pytest.mark.slow
def test_everything_acknowledged_outlives_a_power_cut(loop_file: LoopFile, seed: int) -> None:
    cut_again_and_again(loop_file, seed, cuts=4)


@pytest.mark.heavy
def test_everything_acknowledged_outlives_many_power_cuts(loop_file: LoopFile, seed: int) -> None:
    cut_again_and_again(loop_file, seed, cuts=60)
