"""The tiered engine while its servers fail: lost answers, two writers, killed and slow servers, wrong bytes.

The engine runs in the test's own loop, on a real PostgreSQL and a real Redis. Rules are taken out one by one
at the end: a scenario that passes without a rule does not test it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.crash.tiered_rig import (
    CONFIG,
    PARTITION,
    Cut,
    Proxy,
    append,
    bounds,
    engine_on,
    rows,
    session,
    values_of,
)
from tests.postgres import PostgresServer, parsed
from tests.redis import RedisServer
from tests.seed import seed_of_run

from tailrace.model import LogBusy, StorageError
from tailrace.postgres import Connection
from tailrace.security import Secret
from tailrace.storage.tiered.commit import Committer
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.redis_url import parse_redis_url
from tailrace.storage.tiered.statement import RoundChange
from tailrace.storage.tiered.storage import TieredStorage
from tailrace.storage.tiered.writer import Writer

_MARK = b"the answer to this is lost"


def run(scenario: Awaitable[None], *, seconds: float = 60) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, seconds)

    asyncio.run(bounded())


# ---- answers that are lost


async def _with_cuts(dsn: Secret, cuts: list[list[Cut]]) -> None:
    """One append for each element, whose round meets these cuts one after the other."""
    direct = parsed(dsn)
    proxy = Proxy(direct)
    through = await proxy.start()
    try:
        async with engine_on(bounds(through)) as storage:
            log = await storage.create(PARTITION, CONFIG)
            append(log, b"first")
            await log.wait_durable(log.end_offset)
            proxy.mark = _MARK
            wanted = [b"first"]
            for number, each in enumerate(cuts):
                proxy.cuts = list(each)
                wanted.append(b"%s %d" % (_MARK, number))
                append(log, wanted[-1])
                await log.wait_durable(log.end_offset)
                assert not proxy.cuts, "a cut did not happen"
            assert await values_of(log) == list(enumerate(wanted))
        found = [row[:2] for row in await rows(direct)]
        assert found == [(offset, offset + 1) for offset in range(len(wanted))], "an offset has not one row"
        async with engine_on(bounds(direct)) as storage:
            again = storage.get(PARTITION)
            assert again is not None
            assert await values_of(again) == list(enumerate(wanted))
    finally:
        await proxy.close()


def _cuts(rng: random.Random) -> list[Cut]:
    """What one round meets: it may be kept from the server several times, and once its answer is lost."""
    return [*["before"] * rng.randint(0, 2), "after"] if rng.random() < 0.7 else ["before"]  # type: ignore[list-item]


def test_a_lost_answer_neither_loses_nor_doubles_a_round(postgres: Secret) -> None:
    rng = random.Random(seed_of_run())
    run(_with_cuts(postgres, [_cuts(rng) for _ in range(12)]))


@pytest.mark.heavy
def test_a_thousand_lost_answers(postgres: Secret) -> None:
    rng = random.Random(seed_of_run())
    run(_with_cuts(postgres, [_cuts(rng) for _ in range(700)]), seconds=1200)


async def _held_at_a_lock(dsn: Secret, *, repeats: bool = False) -> None:
    """The connection is lost while the old backend waits for a lock, and goes on behind our back.

    `repeats` says that the writer, without a rule, sends the round again meanwhile.
    """
    direct = parsed(dsn)
    proxy = Proxy(direct)
    through = await proxy.start()
    try:
        async with engine_on(bounds(through)) as storage:
            log = await storage.create(PARTITION, CONFIG)
            append(log, b"first")
            await log.wait_durable(log.end_offset)
            async with session(direct) as locker, locker.transaction():
                await locker.execute(
                    "LOCK TABLE tailrace.chunks_31 IN SHARE MODE"
                )  # appends wait, readers do not
                proxy.mark, proxy.cuts = _MARK, ["held"]
                append(log, _MARK)
                await _wait_for(lambda: proxy.done == 1)
                await _wait_until_locked(locker, waiting=2 if repeats else 1)
            await log.wait_durable(log.end_offset)
        found = [row[:2] for row in await rows(direct)]
        assert found == [(0, 1), (1, 2)], f"an offset has not one row: {found}"
    finally:
        await proxy.close()


async def _wait_for(done: Callable[[], bool]) -> None:
    """For what gives no sign of itself."""
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def _wait_until_locked(connection: Connection, *, waiting: int = 1) -> None:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'tailrace.chunks_31'::regclass"
    while await connection.fetchval(query) < waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_an_old_backend_that_waits_for_a_lock_is_waited_for(postgres: Secret) -> None:
    run(_held_at_a_lock(postgres))


# ---- two writers


def test_a_writer_that_was_deposed_ends_and_writes_nothing(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn = parsed(postgres)
        first = await TieredStorage.open(bounds(dsn, watch_interval_s=3600.0))
        log = await first.create(PARTITION, CONFIG)
        append(log, b"of the first")
        await log.wait_durable(log.end_offset)
        second = TieredStorage(bounds(dsn), clock=first.shared.clock)
        await second.writer.begin()  # as if it had the lock
        append(log, b"too late")
        with pytest.raises(StorageError, match="another process has taken over"):
            await log.wait_durable(log.end_offset)
        assert isinstance(await first.wait_failed(), StorageError)
        with pytest.raises(StorageError):
            append(log, b"later still")
        await first.close()
        await second.close()
        assert [row[:2] for row in await rows(dsn)] == [(0, 1)]

    run(scenario())


def test_a_deposed_writer_that_appends_nothing_ends_too(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn = parsed(postgres)
        first = await TieredStorage.open(bounds(dsn, watch_interval_s=0.05))
        second = TieredStorage(bounds(dsn), clock=first.shared.clock)
        await second.writer.begin()
        assert "another process" in str(await first.wait_failed())
        await first.close()
        await second.close()

    run(scenario())


def test_a_second_engine_stands_by_and_goes_on_where_the_first_ended(postgres: Secret) -> None:
    async def scenario() -> None:
        dsn = parsed(postgres)
        waiting = asyncio.Event()

        async def stand_by() -> None:
            waiting.set()

        async with engine_on(bounds(dsn)) as first:
            log = await first.create(PARTITION, CONFIG)
            opening = asyncio.ensure_future(TieredStorage.open(bounds(dsn), stand_by=stand_by))
            await waiting.wait()
            append(log, b"acknowledged")
            await log.wait_durable(log.end_offset)
            assert not opening.done()
        second = await opening
        found = second.get(PARTITION)
        assert found is not None and await values_of(found) == [(0, b"acknowledged")]
        append(found, b"and on")
        await found.wait_durable(found.end_offset)
        await second.close()

    run(scenario())


async def _takeover_during_a_round(dsn: Secret) -> None:
    """Another writer takes over while a round of the first one is past its fence and waits for a lock."""
    direct = parsed(dsn)
    first = await TieredStorage.open(bounds(direct, watch_interval_s=3600.0))
    log = await first.create(PARTITION, CONFIG)
    append(log, b"first")
    await log.wait_durable(log.end_offset)
    second = TieredStorage(bounds(direct), clock=first.shared.clock)
    try:
        async with session(direct) as locker, locker.transaction():
            await locker.execute("LOCK TABLE tailrace.chunks_31 IN SHARE MODE")
            append(log, b"under way")
            await _wait_until_locked(locker)
            beginning = asyncio.ensure_future(second.writer.begin())
            await asyncio.wait({beginning}, timeout=0.3)
            early = beginning.done()
        await beginning
        await log.wait_durable(log.end_offset)
        assert not early, "a writer took over while a round of the one before was under way"
    finally:
        await first.close()
        await second.close()


def test_a_takeover_waits_for_the_round_under_way(postgres: Secret) -> None:
    run(_takeover_during_a_round(postgres))


# ---- servers that go away


def _append_until_refused(log: TieredLog) -> None:
    while True:
        append(log, b"waits")


def test_a_killed_database_loses_nothing_acknowledged_and_producers_hear_of_it(
    own_postgres: PostgresServer,
) -> None:
    async def scenario() -> None:
        dsn = parsed(own_postgres.dsn())
        config = bounds(dsn, queue_bytes_max=2000, tail_bytes_max=1 << 20)
        async with engine_on(config) as storage:
            log = await storage.create(PARTITION, CONFIG)
            for number in range(5):
                append(log, b"%d" % number)
            await log.wait_durable(log.end_offset)
            await asyncio.to_thread(own_postgres.kill)
            with pytest.raises(LogBusy):
                _append_until_refused(log)
            end = log.end_offset
            hot = log.read_nowait(log.start_offset, bytes_max=1 << 20, up_to=log.durable_offset)
            assert hot is not None and hot.next_offset == 5, (
                "what is hot is not read while PostgreSQL is away"
            )
            await asyncio.to_thread(own_postgres.start)
            await log.wait_durable(end)
            assert len(await values_of(log)) == end
        assert [row[0] for row in await rows(dsn)] == sorted({row[0] for row in await rows(dsn)})

    run(scenario(), seconds=120)


@pytest.mark.parametrize("trouble", ["flushed", "paused", "killed", "wrong bytes"])
def test_trouble_with_redis_costs_time_only(postgres: Secret, own_redis: RedisServer, trouble: str) -> None:
    async def scenario() -> None:
        redis = parse_redis_url(Secret(own_redis.url), key="url")
        async with engine_on(bounds(parsed(postgres), redis=redis)) as storage:
            assert storage.cache is not None
            counters = storage.cache.counters
            log = await storage.create(PARTITION, CONFIG)
            for number in range(8):
                append(log, b"%d" % number)
                await log.wait_durable(log.end_offset)
            await _wait_for(lambda: counters.written == 8)
            wanted = [(number, b"%d" % number) for number in range(8)]
            assert await values_of(log) == wanted
            assert counters.hits == 8, "Redis was not asked, so the rest of this shows nothing"
            if trouble == "flushed":
                own_redis.command("FLUSHALL")
            elif trouble == "wrong bytes":
                for key in own_redis.command("KEYS", "*").split()[2::2]:
                    own_redis.command("SET", key, "nonsense")
            elif trouble == "killed":
                await asyncio.to_thread(own_redis.kill)
            else:
                with own_redis.paused():
                    assert await values_of(log) == wanted
                    assert storage.cache.breaker.state == "open"
            assert await values_of(log) == wanted
            assert counters.hits == 8
            if trouble == "wrong bytes":
                assert counters.wrong == 8

    run(scenario())


async def _nothing_before_the_commit(dsn: Secret, server: RedisServer) -> None:
    direct = parsed(dsn)
    redis = parse_redis_url(Secret(server.url), key="url")
    async with engine_on(bounds(direct, redis=redis)) as storage:
        log = await storage.create(PARTITION, CONFIG)
        append(log, b"first")
        await log.wait_durable(log.end_offset)
        assert storage.cache is not None
        counters = storage.cache.counters
        await _wait_for(lambda: counters.written == 1)
        async with session(direct) as locker, locker.transaction():
            await locker.execute("LOCK TABLE tailrace.chunks_31 IN SHARE MODE")
            append(log, b"not committed")
            await _wait_until_locked(locker)
            await asyncio.sleep(0.1)
            assert server.command("DBSIZE") == ":1", "Redis has a chunk that is not committed"
        await log.wait_durable(log.end_offset)


def test_redis_is_given_nothing_before_the_commit(postgres: Secret, own_redis: RedisServer) -> None:
    run(_nothing_before_the_commit(postgres, own_redis))


# ---- rules taken out


def test_without_the_takeover_an_old_backend_is_missed(
    postgres: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_takeover(self: Writer, connection: Connection) -> None:
        """The rule that is taken out."""

    monkeypatch.setattr(Writer, "_take_over_again", no_takeover)
    with pytest.raises((AssertionError, StorageError)):
        run(_held_at_a_lock(postgres, repeats=True))


def test_with_a_fresh_append_time_a_round_is_doubled(
    postgres: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = RoundChange._append

    async def with_fresh_time(self: RoundChange, connection: Connection, drafts: object, epoch: int) -> None:
        planned = self._round.appended_ms
        self._round.appended_ms += random.randint(1, 1000)
        try:
            await send(self, connection, drafts, epoch)  # type: ignore[arg-type]
        finally:
            self._round.appended_ms = planned

    monkeypatch.setattr(RoundChange, "_append", with_fresh_time)
    with pytest.raises((AssertionError, StorageError)):
        run(_with_cuts(postgres, [["before", "after"]]))


def test_without_the_lock_on_the_epoch_a_takeover_overtakes_a_round(postgres: Secret) -> None:
    async def take_out() -> None:
        async with engine_on(bounds(parsed(postgres))), session(parsed(postgres)) as connection:
            source = await connection.fetchval("SELECT pg_get_functiondef('tailrace.fence'::regproc)")
            assert "FOR SHARE" in source
            await connection.execute(source.replace("FOR SHARE", ""))

    run(take_out())
    with pytest.raises(AssertionError, match="took over while"):
        run(_takeover_during_a_round(postgres))


def test_with_redis_before_the_commit_uncommitted_chunks_are_seen(
    postgres: Secret, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = RoundChange.apply

    async def put_first(self: RoundChange, connection: Connection, epoch: int) -> object:
        from tailrace.storage.tiered.round import make_chunk

        for draft in self._round.drafts:
            chunk = make_chunk(draft, appended_ms=self._round.appended_ms, epoch=epoch)
            committers[0]._cache(chunk)
        return await send(self, connection, epoch)

    committers: list[Committer] = []
    begin = Committer.__init__

    def remember(self: Committer, *given: object, **named: object) -> None:
        begin(self, *given, **named)  # type: ignore[arg-type]
        committers.insert(0, self)

    monkeypatch.setattr(Committer, "__init__", remember)
    monkeypatch.setattr(RoundChange, "apply", put_first)
    with pytest.raises(AssertionError):
        run(_nothing_before_the_commit(postgres, own_redis), seconds=10)
