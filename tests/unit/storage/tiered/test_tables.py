"""The tables of the tiered engine on a real PostgreSQL: days, classes, what leaves, rights, a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from uuid import UUID

import pytest
from tests.crash.tiered_rig import engine_on, session, values_of
from tests.postgres import parsed

from tailrace.model import ConfigError, Epoch, NoSpace, Offset, PartitionId
from tailrace.postgres import DatabaseRefused, Dsn, Role, create_roles, mapped
from tailrace.records import build_batch, read_batch
from tailrace.runtime import Clock
from tailrace.security import Secret
from tailrace.storage import LogConfig
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.storage import TieredStorage
from tailrace.testing import FakeClock

FIRST, SECOND = (PartitionId(UUID(int=7), number) for number in range(2))
DAY_MS = 24 * 3600 * 1000
_LEAVES = """
SELECT relname FROM pg_class JOIN pg_partition_tree('tailrace.chunks') AS tree ON tree.relid = pg_class.oid
WHERE isleaf ORDER BY 1
"""


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 60)

    asyncio.run(bounded())


def config_of(dsn: Dsn, **changes: object) -> TieredConfig:
    return replace(TieredConfig(dsn=dsn, days_ahead=0), **changes)  # type: ignore[arg-type]


async def opened(dsn: Dsn, clock: Clock, **changes: object) -> TieredStorage:
    return await TieredStorage.open(config_of(dsn, **changes), clock=clock)


async def fill(log: TieredLog, clock: Clock, *, count: int = 1, value_bytes: int = 10) -> None:
    for _ in range(count):
        data = build_batch([(clock.now_ms(), None, bytes(value_bytes), ())])
        log.append(read_batch(data), leader_epoch=Epoch(0))
    await log.wait_durable(log.end_offset)


async def leaves(dsn: Dsn) -> list[str]:
    async with session(dsn) as connection:
        return [row[0] for row in await connection.fetch(_LEAVES)]


def test_each_class_and_day_has_a_table_that_is_compressed_with_lz4(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn, clock = parsed(postgres), FakeClock()
        storage = await opened(dsn, clock, days_ahead=1)
        for partition, days in ((FIRST, 31), (SECOND, 1)):
            log = await storage.create(partition, LogConfig(retention_ms=days * DAY_MS))
            await fill(log, clock)
        await storage.close()
        assert await leaves(dsn) == [
            "chunks_1_20250615", "chunks_1_20250616",
            "chunks_31_20250615", "chunks_31_20250616", "chunks_kept",
        ]  # fmt: skip
        async with session(dsn) as connection:
            wrong = await connection.fetchval(
                "SELECT count(*) FROM pg_attribute JOIN pg_partition_tree('tailrace.chunks') AS tree"
                " ON tree.relid = attrelid WHERE attname = 'data' AND isleaf AND attcompression <> 'l'"
            )
            assert wrong == 0, "a table of a day is not compressed with lz4"

    run(scenario())


def test_a_day_leaves_whole_when_no_log_needs_it(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn, clock = parsed(postgres), FakeClock()
        storage = await opened(dsn, clock)
        short = await storage.create(FIRST, LogConfig(retention_ms=DAY_MS))
        long = await storage.create(SECOND, LogConfig(retention_ms=31 * DAY_MS))
        for _ in range(3):
            await fill(short, clock, count=3)
            await fill(long, clock)
            clock.advance(DAY_MS)
        await storage.maintain()
        assert (short.start_offset, long.start_offset) == (6, 0)
        assert await leaves(dsn) == [
            "chunks_1_20250617", "chunks_1_20250618",
            "chunks_31_20250615", "chunks_31_20250616", "chunks_31_20250617", "chunks_31_20250618",
            "chunks_kept",
        ]  # fmt: skip
        assert storage.cleaned.days == 2
        clock.advance(40 * DAY_MS)
        await storage.maintain()
        await storage.maintain()
        assert (short.start_offset, long.start_offset) == (9, 3)
        assert all(name.endswith(("_kept", "20250728")) for name in await leaves(dsn))
        await fill(long, clock)
        await storage.close()
        again = await opened(dsn, clock)
        found = again.get(FIRST)
        assert found is not None and (found.start_offset, found.end_offset) == (9, 9)
        await again.close()

    run(scenario())


def test_an_idle_analyst_holds_up_a_day_and_no_append(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn, clock = parsed(postgres), FakeClock()
        storage = await opened(dsn, clock)
        log = await storage.create(FIRST, LogConfig(retention_ms=DAY_MS))
        await fill(log, clock)
        clock.advance(3 * DAY_MS)
        async with session(dsn) as analyst, analyst.transaction():
            await analyst.fetchval("SELECT count(*) FROM tailrace.chunks")
            await storage.maintain()
            assert storage.cleaned.days_held_up == 1 and storage.cleaned.days == 0
            await fill(log, clock)
        await storage.maintain()
        assert storage.cleaned.days == 1
        await storage.close()

    run(scenario())


def test_deleted_logs_and_kept_chunks_below_a_start_leave_by_rows(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn, clock = parsed(postgres), FakeClock()
        storage = await opened(dsn, clock)
        gone = await storage.create(FIRST, LogConfig())
        kept = await storage.create(SECOND, LogConfig(retention_ms=-1))
        await fill(gone, clock, count=3)
        for _ in range(4):
            await fill(kept, clock)
        await storage.delete(FIRST)
        await kept.trim(Offset(kept.end_offset - 1))
        await storage.maintain()
        async with session(dsn) as connection:
            left = await connection.fetch("SELECT log, base_offset FROM tailrace.chunks")
            logs = await connection.fetchval("SELECT count(*) FROM tailrace.logs")
        assert ([(row[0], row[1]) for row in left], logs) == ([(kept.id, 3)], 1)
        again = await storage.create(FIRST, LogConfig())
        assert again.id > kept.id, "the id of a log was used again"
        await storage.delete(FIRST)
        await storage.close()
        reopened = await opened(dsn, clock)
        assert (await reopened.create(FIRST, LogConfig())).id > again.id
        await reopened.close()

    run(scenario())


def test_a_clock_that_goes_back_or_jumps_ahead_loses_nothing(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn = parsed(postgres)
        late, early = FakeClock(1_760_000_000_000), FakeClock(1_750_000_000_000)
        for turn, clock in enumerate((late, early, FakeClock(2_080_000_000_000), early)):
            storage = await opened(dsn, clock)
            log = storage.get(FIRST) or await storage.create(FIRST, LogConfig(delete=False))
            await fill(log, clock)
            assert len(await values_of(log)) == turn + 1
            await storage.close()
        async with session(dsn) as connection:
            times = await connection.fetch("SELECT appended_ms FROM tailrace.chunks ORDER BY base_offset")
        assert [row[0] for row in times] == sorted(row[0] for row in times), "the time of an append went back"

    run(scenario())


def test_a_writer_without_tables_of_its_own_can_do_everything_but_make_them(
    postgres: Secret,
) -> None:
    names = [f"{kind}_{parsed(postgres).database}" for kind in ("owner", "writer", "analyst")]
    password = Secret("a password of the test")

    def as_user(name: str) -> Dsn:
        return replace(parsed(postgres), user=name, password=password)

    async def scenario() -> None:
        async with session(parsed(postgres)) as boss:
            kinds = ("owner", "writer", "analyst")
            roles = [
                Role(name=name, kind=kind, password=password)  # type: ignore[arg-type]
                for name, kind in zip(names, kinds, strict=True)
            ]
            await create_roles(boss, roles, database=parsed(postgres).database)
        with pytest.raises(ConfigError, match="of the owner"):
            await opened(as_user(names[1]), FakeClock())
        await (await opened(as_user(names[0]), FakeClock())).close()
        clock = FakeClock()
        async with engine_on(config_of(as_user(names[1]))) as storage:
            storage.shared.clock = clock
            log = await storage.create(FIRST, LogConfig(retention_ms=DAY_MS))
            await fill(log, clock, count=3)
            clock.advance(5 * DAY_MS)
            await storage.maintain()
            assert storage.cleaned.days == 1
            await fill(log, clock)
            await log.truncate(Offset(3))
            await storage.delete(FIRST)
            await storage.maintain()
        async with session(as_user(names[2])) as analyst:
            for statement in (
                "SELECT * FROM tailrace.chunks",
                "SELECT tailrace.add_day(31, 5)",
                "SELECT tailrace.drop_day(31, 5)",
                "UPDATE tailrace.writer SET epoch = 0",
                "SELECT * FROM tailrace.metadata",
            ):
                with pytest.raises(DatabaseRefused), mapped("it"):
                    await analyst.execute(statement)

    run(scenario())


def test_a_database_that_has_no_room_refuses_appends_until_it_has(postgres: Secret) -> None:
    """A trigger says what PostgreSQL says then: SQLSTATE 53100."""

    async def scenario() -> None:
        dsn, clock = parsed(postgres), FakeClock()
        storage = await opened(dsn, clock)
        log = await storage.create(FIRST, LogConfig())
        await fill(log, clock)
        async with session(dsn) as boss:
            await boss.execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
            )
            await boss.execute(
                "CREATE TRIGGER full_disk BEFORE INSERT ON tailrace.chunks_31_20250615"
                " FOR EACH ROW EXECUTE FUNCTION full_disk()"
            )
            log.append(read_batch(build_batch([(clock.now_ms(), None, b"waits", ())])), leader_epoch=Epoch(0))
            while storage.shared.refusal is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            with pytest.raises(NoSpace, match="no room"):
                await fill(log, clock)
            assert storage.counters.trouble().startswith("writes wait for the database")
            assert len(await values_of(log)) == 1, "reads go on"
            await boss.execute("DROP TRIGGER full_disk ON tailrace.chunks_31_20250615")
        await log.wait_durable(log.end_offset)
        await fill(log, clock)
        assert [value for _, value in await values_of(log)] == [bytes(10), b"waits", bytes(10)]
        assert storage.counters.trouble() == ""
        await storage.close()

    run(scenario())
