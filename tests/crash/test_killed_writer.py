"""kill -9 of a writer at random moments, on real files: what it was promised is there, byte for byte.

The next writer opens what the last one left, says what it found, and goes on in it; so most openings recover
from a crash that came upon the recovery from another.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tailrace.storage.api import Fsync
from tailrace.storage.segment import SegmentStorage
from tailrace.testing.faults import Ledger, WriterProcess, read_state, small_directory

_EPOCHS_PER_LIFE = 10_000


def run_lives(path: Path, rng: random.Random, *, fsync: str, kills: int) -> Ledger:
    """Start, listen to and kill one writer after the other."""
    ledger = Ledger()
    for life in range(kills):
        options = (
            f"--seed={rng.getrandbits(32)}",
            f"--fsync={fsync}",
            f"--epoch={life * _EPOCHS_PER_LIFE}",
        )
        with WriterProcess(path, ledger, *options) as writer:
            assert writer.listen_for(rng.randint(1, 400)), writer.last_words()
            time.sleep(rng.random() * 0.02)  # the moment of the kill is between reports, too
            writer.kill()
    return ledger


async def check_directory(path: Path, ledger: Ledger, *, fsync: str) -> None:
    """Open it here, and compare."""
    storage = await SegmentStorage.open(path, config=small_directory(Fsync.parse(fsync)))
    found = {log.partition_id.partition: await read_state(log) for log in storage.logs()}
    ledger.check(dict(found))
    await storage.close()


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["commit", "interval:20", "os"])
def test_everything_acknowledged_outlives_a_killed_writer(tmp_path: Path, seed: int, fsync: str) -> None:
    ledger = run_lives(tmp_path, random.Random(seed), fsync=fsync, kills=6)
    asyncio.run(check_directory(tmp_path, ledger, fsync=fsync))
    assert ledger.openings == 6


@pytest.mark.heavy
@pytest.mark.parametrize("fsync", ["commit", "interval:20", "os"])
def test_everything_acknowledged_outlives_a_hundred_kills(tmp_path: Path, seed: int, fsync: str) -> None:
    ledger = run_lives(tmp_path, random.Random(seed), fsync=fsync, kills=100)
    asyncio.run(check_directory(tmp_path, ledger, fsync=fsync))
    assert ledger.openings == 100
