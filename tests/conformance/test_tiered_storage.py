"""The tiered engine against the conformance suite, on PostgreSQL: as it comes, in small chunks, loose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.postgres import PostgresServer, parsed, run_on

from tailrace.security import Secret
from tailrace.storage import OS, StorageEngine
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.storage import TieredStorage
from tailrace.testing import FakeClock
from tailrace.testing.storage_suite import DurableStorageSuite


@pytest.fixture(scope="module")
def one_database(fast_postgres: PostgresServer) -> Iterator[Secret]:
    dsn = fast_postgres.create_database()
    yield dsn
    fast_postgres.drop_database(dsn)


@pytest.fixture
def emptied_postgres(one_database: Secret) -> Secret:
    """To drop the tables takes a tenth of the time that a new database does."""
    run_on(one_database, lambda each: each.execute("DROP SCHEMA IF EXISTS tailrace CASCADE"))
    return one_database


class TestTieredStorage(DurableStorageSuite):
    bounds: Mapping[str, object] = MappingProxyType({})
    dsn: Secret

    @pytest.fixture(autouse=True)
    def _database(self, emptied_postgres: Secret) -> None:
        self.dsn = emptied_postgres

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        config = TieredConfig(dsn=parsed(self.dsn), days_ahead=0)
        return await TieredStorage.open(replace(config, **self.bounds), clock=clock)  # type: ignore[arg-type]


class TestSmallChunks(TestTieredStorage):
    """Nothing stays in memory: every read asks the database, and a chunk holds few batches."""

    bounds = MappingProxyType(
        {
            "chunk_bytes": 300,
            "tail_bytes_max": 0,
            "chunk_cache_bytes": 0,
            "recent_chunks_max": 0,
            "copy_bytes_min": 500,
        }
    )


@pytest.mark.heavy
class TestLooseStorage(TestTieredStorage):
    """Durable means committed: rounds do not wait for the disk."""

    bounds = MappingProxyType({"fsync": OS})
