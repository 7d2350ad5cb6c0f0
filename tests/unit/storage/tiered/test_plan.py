"""What the tiered engine decides purely: classes, rounds, spans, names, states, URLs, and its breaker."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model import ConfigError, Epoch, LogDamaged, Offset
from tailrace.records import Batch, build_batch, read_batch
from tailrace.security import Secret
from tailrace.storage import OS, LogConfig
from tailrace.storage.tiered.breaker import Breaker
from tailrace.storage.tiered.chunk import ChunkName, batches_of, check_chunk
from tailrace.storage.tiered.entry import Append, Trim
from tailrace.storage.tiered.recent import RecentChunks
from tailrace.storage.tiered.redis_url import parse_redis_url
from tailrace.storage.tiered.retention_class import DAY_MS, KEPT, day_of_append, retention_class
from tailrace.storage.tiered.round import make_chunk, plan_round
from tailrace.storage.tiered.span import Spans
from tailrace.storage.tiered.state import LogState, read_state, write_state
from tailrace.storage.tiered.waiting import Waiting

NOW_MS = 1_750_000_000_000


class FakeLog:
    """What a plan asks of a log."""

    def __init__(self, log_id: int = 1, config: LogConfig | None = None) -> None:
        self.id = log_id
        self.config = config or LogConfig()
        self.fsync = self.config.fsync or OS


def batch_at(offset: int, *, count: int = 1, value_bytes: int = 10, transactional: bool = False) -> Batch:
    made = read_batch(
        build_batch(
            [(NOW_MS + offset, None, bytes(value_bytes), ())] * count,
            producer_id=7 if transactional else -1,
            producer_epoch=0 if transactional else -1,
            base_sequence=offset if transactional else -1,
            transactional=transactional,
        )
    )
    made.assign(Offset(offset), Epoch(3))
    return made


def append(log: FakeLog, batch: Batch) -> Append:
    return Append(log, batch)  # type: ignore[arg-type]


def name_at(
    base: int, end: int, *, retention: int = 31, appended_ms: int = NOW_MS, size: int = 10
) -> ChunkName:
    return ChunkName(retention, 1, base, end, appended_ms, appended_ms, 5, size, 0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LogConfig(), 31),
        (LogConfig(retention_ms=1), 1),
        (LogConfig(retention_ms=DAY_MS), 1),
        (LogConfig(retention_ms=DAY_MS + 1), 7),
        (LogConfig(retention_ms=366 * DAY_MS), 366),
        (LogConfig(retention_ms=366 * DAY_MS + 1), KEPT),
        (LogConfig(retention_ms=-1), KEPT),
        (LogConfig(compact=True), KEPT),
        (LogConfig(delete=False), KEPT),
    ],
)
def test_a_class_is_the_retention_rounded_up(config: LogConfig, expected: int) -> None:
    assert retention_class(config) == expected


def test_a_day_is_that_of_the_append_and_kept_chunks_have_none() -> None:
    assert day_of_append(31, 3 * DAY_MS + 5) == 3
    assert day_of_append(KEPT, 3 * DAY_MS + 5) == 0


def test_appends_of_a_log_become_one_chunk_up_to_the_size_of_chunk_and_segment() -> None:
    log, small = FakeLog(1), FakeLog(2, LogConfig(segment_bytes=100))
    entries = [append(log, batch_at(0)), append(small, batch_at(0)), append(log, batch_at(1))]
    planned = plan_round(
        [*entries, append(small, batch_at(1))], number=1, appended_ms=NOW_MS, chunk_bytes=1000
    )
    made = [make_chunk(draft, appended_ms=NOW_MS, epoch=9).name for draft in planned.drafts]
    assert sorted((name.log, name.base_offset, name.next_offset) for name in made) == [
        (1, 0, 2), (2, 0, 1), (2, 1, 2),
    ]  # fmt: skip
    assert len(planned.steps) == 1 and not planned.controls
    assert planned.days() == {(31, NOW_MS // DAY_MS)}


def test_what_is_no_append_keeps_its_place_between_appends() -> None:
    log = FakeLog()
    trim = Trim(log, Offset(1))  # type: ignore[arg-type]
    planned = plan_round(
        [append(log, batch_at(0)), trim, append(log, batch_at(1))],
        number=1,
        appended_ms=NOW_MS,
        chunk_bytes=1000,
    )
    assert [step if step is trim else len(step) for step in planned.steps] == [1, trim, 1]  # type: ignore[arg-type]
    assert planned.synced


@pytest.mark.parametrize("transactional", [True, False])
def test_a_round_of_loose_appends_waits_for_the_disk_only_for_transactions(transactional: bool) -> None:
    batch = batch_at(0, transactional=transactional)
    log = FakeLog(config=LogConfig(fsync=OS))
    assert plan_round([append(log, batch)], number=1, appended_ms=0, chunk_bytes=9).synced is transactional


def test_the_same_round_gives_the_same_chunk_but_for_the_epoch() -> None:
    planned = plan_round([append(FakeLog(), batch_at(4))], number=1, appended_ms=NOW_MS, chunk_bytes=1000)
    draft = next(planned.drafts)
    first, again = (make_chunk(draft, appended_ms=planned.appended_ms, epoch=epoch) for epoch in (1, 2))
    assert first.name._replace(writer_epoch=2) == again.name and first.data == again.data
    assert first.name.key("c") != again.name.key("c")


@pytest.mark.parametrize("damage", ["flipped", "shorter", "longer"])
def test_bytes_that_are_not_those_of_the_name_are_refused(damage: str) -> None:
    planned = plan_round([append(FakeLog(), batch_at(4))], number=1, appended_ms=NOW_MS, chunk_bytes=1000)
    chunk = make_chunk(next(planned.drafts), appended_ms=NOW_MS, epoch=1)
    assert [batch.base_offset for batch in batches_of(check_chunk(chunk, log="log"), log="log")] == [4]
    data = bytearray(chunk.data)
    data[3] ^= 1  # of the base offset, which the checksum of the batch does not cover
    wrong = {"flipped": bytes(data), "shorter": chunk.data[:-1], "longer": chunk.data + b"x"}[damage]
    with pytest.raises(LogDamaged, match="Restore"):
        check_chunk(chunk._replace(data=wrong), log="log")


def test_a_chunk_that_ends_elsewhere_than_its_name_says_is_refused() -> None:
    planned = plan_round([append(FakeLog(), batch_at(4))], number=1, appended_ms=NOW_MS, chunk_bytes=1000)
    chunk = make_chunk(next(planned.drafts), appended_ms=NOW_MS, epoch=1)
    with pytest.raises(LogDamaged, match="ends at 5, not 6"):
        batches_of(chunk._replace(name=chunk.name._replace(next_offset=6)), log="log")


def test_spans_follow_days_and_classes() -> None:
    spans = Spans()
    for name in (
        name_at(0, 5),
        name_at(5, 8),
        name_at(8, 9, appended_ms=NOW_MS + DAY_MS),
        name_at(9, 12, retention=7, appended_ms=NOW_MS + DAY_MS),
    ):
        spans.add(name)
    assert [(span.retention, span.base_offset, span.next_offset) for span in spans] == [
        (31, 0, 8), (31, 8, 9), (7, 9, 12),
    ]  # fmt: skip
    assert [span.base_offset for span in spans.from_offset(8)] == [8, 9]
    assert spans.size == 40
    spans.truncate(9)
    assert [span.next_offset for span in spans] == [8, 9]
    spans.truncate(3)
    assert [span.next_offset for span in spans] == [3]
    spans.trim(3)
    assert not list(spans) and spans.from_offset(0) == []


def test_the_newest_chunks_are_found_by_offset_and_older_ones_are_not_known() -> None:
    recent = RecentChunks(lambda: 0)  # keeps the least
    for base in range(0, 200, 10):
        recent.add(name_at(base, base + 8))
    assert len(recent) == 16
    assert recent.find(39) is None
    found = recent.find(45)
    assert found is not None and found.base_offset == 40
    behind_a_gap = recent.find(49)
    assert behind_a_gap is not None and behind_a_gap.base_offset == 50
    assert recent.find(198) is None
    recent.truncate(64, [name_at(60, 62)])
    newest = recent.find(61)
    assert newest is not None and newest.next_offset == 62
    assert recent.find(62) is None


def test_a_state_is_read_as_it_was_written_and_not_where_a_byte_is_wrong() -> None:
    state = LogState()
    for offset in range(3):
        state.apply(batch_at(offset, transactional=True))
    data = write_state(state.epochs, state.producers, state.aborted)
    again = read_state(data)
    assert again is not None
    assert (again.epochs, again.producers, again.aborted) == (state.epochs, state.producers, state.aborted)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        assert read_state(bytes(flipped)) is None, f"byte {place} is not checked"
    for length in (0, 5, len(data) - 1):
        assert read_state(data[:length]) is None
    assert read_state(data + b"x") is None


@pytest.mark.parametrize(
    ("url", "host", "port", "database"),
    [
        ("redis://127.0.0.1", "127.0.0.1", 6379, 0),
        ("redis://localhost:7000/3", "localhost", 7000, 3),
        ("redis://u:p%40ss@[::1]:1/0", "::1", 1, 0),
        ("unix:///run/redis.sock", "unix:/run/redis.sock", 0, 0),
    ],
)
def test_a_redis_url_is_read(url: str, host: str, port: int, database: int) -> None:
    config = parse_redis_url(Secret(url), key="k")
    assert (config.address.host, config.address.port, config.database) == (host, port, database)
    if "@" in url:
        assert config.password == Secret("p@ss") and config.user == "u"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rediss://127.0.0.1", "begins with neither"),
        ("redis://", "no host"),
        ("redis://:geheim@cache.lan", "in the clear"),
        ("redis://127.0.0.1/x", "number of a database"),
        ("redis://127.0.0.1/99999", "number of a database"),
        ("redis://127.0.0.1:port", "cannot be read"),
        ("redis://127.0.0.1?db=1", "has parameters"),
        ("redis://127.0.0.1\x07", "cannot be printed"),
    ],
)
def test_a_redis_url_that_cannot_be_used_is_refused_without_being_shown(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        parse_redis_url(Secret("x" + url if False else url + ("x" if url.endswith("\\n") else "")), key="k")
    assert "geheim" not in str(refused.value)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _is(breaker: Breaker, state: str) -> bool:
    return breaker.state == state


def test_a_breaker_opens_after_failures_in_a_row_and_waits_longer_each_time() -> None:
    time = Time()
    breaker = Breaker(failures_max=3, monotonic=time)
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(2):
        breaker.failed()
    assert _is(breaker, "closed") and breaker.allows()
    breaker.failed()
    waits: list[float] = []
    for _ in range(7):
        assert _is(breaker, "open") and not breaker.allows()
        began = time.now
        while _is(breaker, "open"):
            time.now += 0.5
        waits.append(time.now - began)
        assert breaker.allows(), "one attempt may be made"
        assert not breaker.allows(), "and no second one beside it"
        breaker.failed()
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    time.now += 30
    assert breaker.allows()
    breaker.succeeded()
    assert _is(breaker, "closed") and breaker.allows()


def test_those_who_wait_are_told_in_the_order_of_offsets() -> None:
    async def scenario() -> None:
        loop, waiting = asyncio.get_running_loop(), Waiting()
        futures = {end: loop.create_future() for end in (5, 3, 9)}
        for end, future in futures.items():
            waiting.add(Offset(end), future)
        waiting.reached(Offset(4))
        assert [end for end, future in futures.items() if future.done()] == [3]
        waiting.fail(LogDamaged("x"), above=4, up_to=6)
        assert isinstance(futures[5].exception(), LogDamaged) and not futures[9].done()
        waiting.reached(Offset(9))
        assert futures[9].done()

    asyncio.run(scenario())
