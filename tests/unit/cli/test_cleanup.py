"""`tailrace cleanup` on a real PostgreSQL: what leaves, what it says, and how it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest
from tests.crash.tiered_rig import values_of
from tests.postgres import parsed

from tailrace.cli.main import main
from tailrace.model import Epoch, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.security import Secret
from tailrace.storage import LogConfig
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.storage import TieredStorage
from tailrace.testing import FakeClock

_DAY_MS = 24 * 3600 * 1000
_GONE, _YOUNG = (PartitionId(UUID(int=3), number) for number in range(2))


def test_what_no_topic_needs_leaves_and_the_rest_is_read(
    postgres: Secret, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TieredConfig(dsn=parsed(postgres), days_ahead=0)

    async def write() -> None:
        storage = await TieredStorage.open(config, clock=FakeClock())
        for partition in (_GONE, _YOUNG):
            log = await storage.create(partition, LogConfig(retention_ms=_DAY_MS))
            log.append(read_batch(build_batch([(1, None, b"kept", ())])), leader_epoch=Epoch(0))
            await log.wait_durable(log.end_offset)
        await storage.delete(_GONE)
        await storage.close()

    async def look() -> None:
        storage = await TieredStorage.open(config, clock=FakeClock())
        assert storage.get(_GONE) is None
        log = storage.get(_YOUNG)
        assert log is not None and await values_of(log) == [(0, b"kept")]
        await log.trim(log.end_offset)
        await storage.close()

    file = tmp_path / "tailrace.toml"
    dsn = postgres.reveal()
    file.write_text(f"[storage]\nengine = 'tiered'\n[tiered]\npostgres_dsn = '{dsn}'\n")
    asyncio.run(write())
    assert main(["cleanup", "--config", str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"days": 0, "logs": 1, "chunks": 1, "days_held_up": 0}]
    asyncio.run(look())
    assert main(["cleanup", "--config", str(file)]) == 0
    out = capsys.readouterr()
    assert out.out.split()[-4:] == ["1", "0", "0", "0"]
    assert "postgresql://" not in out.out + out.err


def test_another_engine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text("[storage]\nengine = 'segment'\n")
    assert main(["cleanup", "--config", str(file)]) == 1
    assert "storage.engine = segment keeps nothing in PostgreSQL" in capsys.readouterr().err


def test_a_database_that_is_away_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(
        "[storage]\nengine = 'tiered'\n[tiered]\npostgres_dsn = 'postgresql://a:geheim@127.0.0.1:1/d'\n"
    )
    assert main(["cleanup", "--config", str(file)]) == 1
    said = capsys.readouterr().err
    assert "PostgreSQL 127.0.0.1:1/d cannot be reached" in said and "geheim" not in said
