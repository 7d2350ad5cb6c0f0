"""The memory log beyond the conformance suite: limits, eviction and extents, and generated histories."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import BrokerError, Epoch, LogBusy, Offset, OffsetOutOfRange, PartitionId, StorageError
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig, PartitionLog
from tailrace.storage.api import Extent
from tailrace.storage.memory import MemoryLog
from tailrace.storage.memory.extent import MemoryExtent
from tailrace.storage.memory.log import RingLimits, plan_limits
from tailrace.testing import FakeClock

PARTITION = PartitionId(UUID(int=1), 0)
EPOCH = Epoch(0)
MINUTE_MS = 60_000


def data_of(clock: FakeClock, count: int, *, value_bytes: int = 10, sequence: int = -1) -> bytearray:
    return build_batch(
        [(clock.now_ms(), None, bytes(value_bytes), ())] * count,
        producer_id=-1 if sequence < 0 else 7,
        producer_epoch=-1 if sequence < 0 else 0,
        base_sequence=sequence,
    )


class Writer:
    """A log, its clock, and a short way to append."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog(PARTITION, config or LogConfig(), clock=self.clock)

    def append(self, count: int = 1, *, value_bytes: int = 10, sequence: int = -1) -> Batch:
        batch = read_batch(data_of(self.clock, count, value_bytes=value_bytes, sequence=sequence))
        self.log.append(batch, leader_epoch=EPOCH)
        return batch

    def read(self, offset: int, *, bytes_max: int = 1 << 30) -> list[Batch]:
        found = self.log.read_nowait(Offset(offset), bytes_max=bytes_max, up_to=self.log.durable_offset)
        return [batch for extent in found.extents for batch in iter_batches(extent.load_nowait() or b"")]

    def bases(self) -> list[int]:
        """Base offsets of all that can be read."""
        return [batch.base_offset for batch in self.read(self.log.start_offset)]


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


def test_it_implements_the_port() -> None:
    log: PartitionLog = MemoryLog(PARTITION, LogConfig(), clock=FakeClock())
    extent: Extent = MemoryExtent([memoryview(b"x")], 1)
    assert log.durable_offset == 0
    assert bytes(extent.load_nowait() or b"") == b"x"


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (LogConfig(retention_ms=-1), (64 << 20, -1, -1)),
        (LogConfig(retention_ms=-1, options={"memory.max.bytes": -1}), (-1, -1, -1)),
        (LogConfig(options={"memory.max.bytes": 100}, retention_bytes=50, retention_ms=-1), (50, -1, -1)),
        (LogConfig(options={"memory.max.bytes": 50}, retention_bytes=100, retention_ms=-1), (50, -1, -1)),
        (LogConfig(options={"memory.max.bytes": -1}, retention_bytes=100, retention_ms=-1), (100, -1, -1)),
        (LogConfig(options={"memory.ttl.ms": 9}, retention_ms=5), (64 << 20, -1, 5)),
        (LogConfig(options={"memory.ttl.ms": 5}, retention_ms=9), (64 << 20, -1, 5)),
        (LogConfig(options={"memory.ttl.ms": 0}, retention_ms=9), (64 << 20, -1, 0)),
        (
            LogConfig(options={"memory.ttl.ms": 9}, retention_ms=5, retention_bytes=1, delete=False),
            (64 << 20, -1, 9),
        ),
        (LogConfig(options={"memory.max.messages": 3}, retention_ms=-1, compact=True), (64 << 20, 3, -1)),
    ],
)
def test_limits_are_the_tighter_ones(config: LogConfig, limits: tuple[int, int, int]) -> None:
    bytes_max, messages_max, age_ms_max = limits
    wanted = RingLimits(bytes_max=bytes_max, messages_max=messages_max, age_ms_max=age_ms_max)
    assert plan_limits(config) == wanted


def test_the_oldest_batches_leave_when_bytes_are_too_many() -> None:
    size = len(data_of(FakeClock(), 2))
    writer = Writer(LogConfig(options={"memory.max.bytes": 3 * size}))
    for _ in range(3):
        writer.append(2)
    assert writer.log.start_offset == 0
    writer.append(2)
    assert writer.bases() == [2, 4, 6]
    assert writer.log.start_offset == 2


def test_the_oldest_batches_leave_when_records_are_too_many() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 10}))
    for count in (4, 6):
        writer.append(count)
    assert writer.bases() == [0, 4]
    writer.append(1)
    assert writer.bases() == [4, 10]
    assert writer.log.start_offset == 4


@pytest.mark.parametrize(
    "config", [LogConfig(options={"memory.max.bytes": 0}), LogConfig(options={"memory.max.messages": 0})]
)
def test_the_newest_batch_stays_however_large(config: LogConfig) -> None:
    writer = Writer(config)
    for _ in range(3):
        newest = writer.append(5, value_bytes=1000)
        assert writer.bases() == [newest.base_offset]


def test_a_reader_that_fell_behind_is_told() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 3}))
    for _ in range(10):
        writer.append()
    with pytest.raises(OffsetOutOfRange) as caught:
        writer.read(6)
    assert (caught.value.start, caught.value.end) == (7, 10)


def test_an_append_drops_what_is_too_old() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    writer.append()
    writer.clock.advance(MINUTE_MS)
    writer.append()
    assert writer.bases() == [0, 1]
    writer.clock.advance(1)
    writer.append()
    assert writer.bases() == [1, 2]


def test_an_append_spares_its_own_batch_whatever_its_age() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    old = data_of(writer.clock, 1)
    writer.clock.advance(10 * MINUTE_MS)
    writer.log.append(read_batch(old), leader_epoch=EPOCH)
    assert writer.bases() == [0]
    writer.append()
    assert writer.bases() == [1]


def test_evicting_empties_a_log_that_is_too_old() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    writer.append(3)
    writer.append(2)
    writer.clock.advance(MINUTE_MS + 1)
    run(writer.log.evict())
    assert (writer.log.start_offset, writer.log.end_offset) == (5, 5)
    assert writer.read(5) == []
    writer.append()
    assert writer.bases() == [5]


def test_evicting_takes_turns_and_finishes() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    data = data_of(writer.clock, 1)
    for _ in range(10_000):
        writer.log.append(read_batch(bytearray(data)), leader_epoch=EPOCH)
    writer.clock.advance(MINUTE_MS + 1)
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        task = asyncio.create_task(writer.log.evict())
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    run(scenario())
    assert writer.log.start_offset == 10_000
    assert turns > 2


def test_a_batch_without_a_time_ages_from_its_arrival() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    timeless = build_batch([(-1, None, b"v", ())])
    writer.log.append(read_batch(timeless), leader_epoch=EPOCH)
    writer.clock.advance(MINUTE_MS)
    run(writer.log.evict())
    assert writer.bases() == [0]
    writer.clock.advance(1)
    run(writer.log.evict())
    assert writer.bases() == []


def test_a_batch_from_the_future_holds_back_those_behind_it() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": MINUTE_MS}))
    future = build_batch([(writer.clock.now_ms() + 10 * MINUTE_MS, None, b"v", ())])
    writer.log.append(read_batch(future), leader_epoch=EPOCH)
    writer.append()
    writer.clock.advance(5 * MINUTE_MS)
    run(writer.log.evict())
    assert writer.bases() == [0, 1]


def test_new_limits_hold_at_once() -> None:
    writer = Writer()
    for _ in range(5):
        writer.append(2)
    writer.log.configure(LogConfig(options={"memory.max.messages": 4}))
    assert writer.bases() == [6, 8]


def test_producers_not_heard_of_for_a_day_are_forgotten() -> None:
    writer = Writer()
    writer.append(sequence=0)
    day_ms = 24 * 60 * MINUTE_MS
    run(writer.log.evict())
    writer.clock.advance(day_ms - 1)
    run(writer.log.evict())
    assert len(writer.log.producers) == 1
    writer.clock.advance(1)
    run(writer.log.evict())
    assert len(writer.log.producers) == 0


def test_epochs_move_with_the_start() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 2}))
    for epoch in range(5):
        writer.log.append(read_batch(data_of(writer.clock, 1)), leader_epoch=Epoch(epoch))
    assert list(writer.log.epochs) == [(3, 3), (4, 4)]


def test_producers_of_evicted_batches_are_remembered() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 1}))
    for sequence in range(3):
        writer.append(sequence=sequence)
    assert writer.log.producers.check(read_batch(data_of(writer.clock, 1, sequence=0))) is not None


def test_truncating_knows_producers_of_evicted_batches() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 2}))
    for sequence in range(5):
        writer.append(sequence=sequence)
    before = Writer()
    for sequence in range(4):
        before.append(sequence=sequence)
    run(writer.log.truncate(Offset(4)))
    assert writer.log.producers == before.log.producers


def test_truncating_below_the_start_forgets_producers() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 2}))
    for sequence in range(5):
        writer.append(sequence=sequence)
    run(writer.log.truncate(Offset(1)))
    assert len(writer.log.producers) == 0
    assert (writer.log.start_offset, writer.log.end_offset) == (1, 1)
    assert writer.append().base_offset == 1


def test_truncating_in_a_gap_ends_the_log_there() -> None:
    writer = Writer()
    for base_offset in (0, 10):
        writer.log.append(follower_batch(writer, base_offset, count=5))
    run(writer.log.truncate(Offset(7)))
    assert writer.log.end_offset == 7
    found = writer.log.read_nowait(Offset(6), bytes_max=100, up_to=writer.log.durable_offset)
    assert (found.size, found.next_offset) == (0, 7)
    assert writer.append().base_offset == 7
    assert writer.bases() == [0, 7]


def test_a_large_batch_is_handed_out_without_a_copy() -> None:
    writer = Writer()
    data = data_of(writer.clock, 1, value_bytes=100_000)
    writer.log.append(read_batch(data), leader_epoch=EPOCH)
    (extent,) = writer.log.read_nowait(Offset(0), bytes_max=1, up_to=writer.log.durable_offset).extents
    view = extent.load_nowait()
    assert view is not None
    assert view.obj is data


def test_small_batches_share_an_extent() -> None:
    writer = Writer()
    for value_bytes in (100, 100, 100, 50_000, 100, 100):
        writer.append(value_bytes=value_bytes)
    found = writer.log.read_nowait(Offset(0), bytes_max=1 << 20, up_to=writer.log.durable_offset)
    assert len(found.extents) == 3
    assert sum(extent.size for extent in found.extents) == found.size


def test_readers_cannot_write() -> None:
    writer = Writer()
    writer.append()
    (extent,) = writer.log.read_nowait(Offset(0), bytes_max=1, up_to=writer.log.durable_offset).extents
    view = extent.load_nowait()
    assert view is not None
    assert view.readonly


def test_a_small_batch_does_not_pin_a_large_buffer() -> None:
    writer = Writer()
    data = data_of(writer.clock, 1)
    frame = bytearray(data) + bytearray(1 << 20)
    writer.log.append(read_batch(frame), leader_epoch=EPOCH)
    (extent,) = writer.log.read_nowait(Offset(0), bytes_max=1, up_to=writer.log.durable_offset).extents
    view = extent.load_nowait()
    assert view is not None
    assert view.obj is not frame
    assert view == writer.read(0)[0].data


def test_a_slice_outlives_eviction_and_closing() -> None:
    writer = Writer(LogConfig(options={"memory.max.messages": 2}))
    writer.append(value_bytes=50_000)
    writer.append()
    found = writer.log.read_nowait(Offset(0), bytes_max=1 << 20, up_to=writer.log.durable_offset)
    for _ in range(5):
        writer.append()
    run(writer.log.close())
    data = b"".join(extent.load_nowait() or b"" for extent in found.extents)
    assert [batch.base_offset for batch in iter_batches(data)] == [0, 1]


def test_evicted_bytes_are_freed_at_once() -> None:
    class Tracked(bytearray):
        """A buffer that can be watched."""

    writer = Writer(LogConfig(options={"memory.max.messages": 1}))
    data = Tracked(data_of(writer.clock, 1))
    watch = weakref.ref(data)
    writer.log.append(read_batch(data), leader_epoch=EPOCH)
    del data
    assert watch() is not None
    writer.append()
    assert watch() is None


def test_trimming_gives_memory_back() -> None:
    writer = Writer()
    for _ in range(9000):
        writer.log.append(read_batch(data_of(writer.clock, 1)), leader_epoch=EPOCH)
    run(writer.log.trim(Offset(8990)))
    assert "10 batches" in repr(writer.log)
    assert writer.bases() == list(range(8990, 9000))


def test_a_lookup_by_time_takes_turns() -> None:
    async def scenario() -> None:
        writer = Writer()
        data = data_of(writer.clock, 1)
        for _ in range(5000):
            writer.log.append(read_batch(bytearray(data)), leader_epoch=EPOCH)
        writer.clock.advance(1)
        writer.append()
        lookup = asyncio.create_task(
            writer.log.find_timestamp(writer.clock.now_ms(), up_to=writer.log.durable_offset)
        )
        await asyncio.sleep(0)
        assert not lookup.done()
        assert await lookup == (5000, writer.clock.now_ms())

    run(scenario())


def test_cancelled_waits_do_not_pile_up() -> None:
    async def scenario() -> None:
        writer = Writer()
        patient = writer.log.wait_durable(Offset(1))
        for _ in range(1000):
            writer.log.wait_durable(Offset(1)).cancel()
        assert len(writer.log._waiters) <= 64
        writer.append()
        await patient

    run(scenario())


def test_a_log_says_how_it_is() -> None:
    writer = Writer()
    batch = writer.append(3)
    assert repr(writer.log) == f"<MemoryLog {PARTITION} 0 to 3, 1 batches, {batch.size} bytes>"
    run(writer.log.close())
    assert repr(writer.log) == f"<MemoryLog {PARTITION} 0 to 3, closed>"
    with pytest.raises(StorageError, match="closed"):
        writer.append()


def test_a_follower_batch_below_the_end_is_refused() -> None:
    writer = Writer()
    writer.append(3)
    with pytest.raises(BrokerError, match="offset 2 is not in the log"):
        writer.log.append(follower_batch(writer, 2))
    assert writer.bases() == [0]


def follower_batch(writer: Writer, base_offset: int, *, count: int = 1) -> Batch:
    batch = read_batch(data_of(writer.clock, count))
    batch.assign(Offset(base_offset), EPOCH)
    return batch


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("follow"), st.integers(0, 4)),
    st.tuples(st.just("trim"), st.integers(0, 40)),
    st.tuples(st.just("truncate"), st.integers(0, 40)),
    st.tuples(st.just("limit"), st.integers(1, 30)),
)


@given(st.lists(STEPS, max_size=60))
def test_generated_histories_match_a_list(steps: list[tuple[str, int]]) -> None:
    """The list holds (base offset, next offset) of every batch that the log must hold."""

    async def scenario() -> None:
        writer = Writer()
        log = writer.log
        model: list[tuple[int, int]] = []
        start = end = 0
        messages_max = -1
        for step, number in steps:
            if step == "append":
                model.append((end, end := end + number))
                writer.append(number)
            elif step == "follow":
                log.append(follower_batch(writer, end + number))
                model.append((end + number, end := end + number + 1))
            elif step == "trim" and number <= end:
                await log.trim(Offset(number))
                start = max(start, number)
            elif step == "truncate" and number < end:
                await log.truncate(Offset(number))
                gone = [base for base, following in model if following > number]
                model = [span for span in model if span[1] <= number]
                end = min([number, *gone])
                start = min(start, end)
            elif step == "limit":
                messages_max = number
                log.configure(LogConfig(options={"memory.max.messages": number}))
            model = [span for span in model if span[1] > start]
            while len(model) > 1 and 0 <= messages_max < count_of(writer, model):
                start = max(start, model.pop(0)[1])
            assert (log.start_offset, log.end_offset) == (start, end)
            for offset in range(start, end):
                wanted = [base for base, following in model if following > offset]
                assert [batch.base_offset for batch in writer.read(offset)] == wanted
                one = log.read_nowait(Offset(offset), bytes_max=0, up_to=log.durable_offset)
                assert len(one.extents) == min(1, len(wanted))

    run(scenario())


def count_of(writer: Writer, model: list[tuple[int, int]]) -> int:
    return sum(following - base for base, following in model)


@pytest.mark.parametrize(
    "limits",
    [
        LogConfig(retention_ms=-1, options={"memory.max.messages": 3}),
        LogConfig(retention_ms=-1, options={"memory.max.bytes": 3 * len(data_of(FakeClock(), 1))}),
    ],
    ids=["by count", "by size"],
)
def test_a_ring_that_is_full_of_what_is_not_final_takes_no_more(limits: LogConfig) -> None:
    writer = Writer(limits)
    final = 0
    writer.log.final_before = lambda: Offset(final)
    for _ in range(3):
        writer.append()
    with pytest.raises(LogBusy):
        writer.append()
    assert (writer.log.start_offset, writer.log.end_offset, len(writer.bases())) == (0, 3, 3)
    final = 2
    for _ in range(2):
        writer.append()
    assert writer.bases() == [2, 3, 4]
    with pytest.raises(LogBusy):
        writer.append()
    writer.log.configure(LogConfig(retention_ms=-1, options={"memory.max.messages": 1}))
    assert writer.bases() == [2, 3, 4]
    final = 5
    writer.append()
    assert writer.bases() == [5]


def test_what_is_not_final_does_not_expire() -> None:
    writer = Writer(LogConfig(options={"memory.ttl.ms": 1000}))
    final = 1
    writer.log.final_before = lambda: Offset(final)
    for _ in range(3):
        writer.append()
    writer.clock.advance(1001)
    writer.append()
    assert writer.bases() == [1, 2, 3]
    run(writer.log.evict())
    assert writer.bases() == [1, 2, 3]
    final = 4
    run(writer.log.evict())
    assert writer.bases() == [3]


def test_a_read_ends_at_its_limit() -> None:
    writer = Writer()
    for count in (2, 3, 4):
        writer.append(count)
    for offset, up_to, bases, next_offset in (
        (0, 0, [], 0),
        (0, 2, [0], 2),
        (1, 5, [0, 2], 5),
        (4, 2, [], 4),
        (9, 5, [], 9),
        (0, 9, [0, 2, 5], 9),
    ):
        found = writer.log.read_nowait(Offset(offset), bytes_max=1 << 20, up_to=Offset(up_to))
        data = b"".join(extent.load_nowait() or b"" for extent in found.extents)
        assert [batch.base_offset for batch in iter_batches(data)] == bases
        assert found.next_offset == next_offset
    with pytest.raises(OffsetOutOfRange) as refused:
        writer.log.read_nowait(Offset(10), bytes_max=1, up_to=Offset(5))
    assert (refused.value.start, refused.value.end) == (0, 5)
