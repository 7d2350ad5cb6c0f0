"""Both storage engines against a plain list of batches: a state machine appends, cuts, reads and crashes.

The list knows every batch that was appended, and where the log begins and ends. From it follows what may be
true of the real log: which reads are right, what a lookup by time finds, what a crash may leave.

The segment engine is played on a simulated disk, where a failure is found again, made small, and printed as
the steps that lead to it, and where the power fails; and on real files, where only its process ends.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.time_limit import deadline

from tailrace.model import NO_PRODUCER, Epoch, LogTruncated, Offset, OffsetOutOfRange, PartitionId
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import (
    COMMIT,
    NO_LIMIT,
    OS,
    Fsync,
    LeaderEpochs,
    LogConfig,
    PartitionLog,
    ProducerStates,
    Slice,
    StorageEngine,
)
from tailrace.storage.memory import MemoryStorage
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.testing import FakeClock
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop
from tailrace.testing.storage_suite.history import load_extents

_T = TypeVar("_T")

PARTITION = PartitionId(UUID(int=0xABCD), 3)
_JOURNAL_FILE = 64 * 1024

values = st.sampled_from([0, 5, 30, 30, 200, 200, 900, 5000])
START_MS = FakeClock().now_ms()
timestamps = st.integers(START_MS, START_MS + 100)
records = st.lists(st.tuples(timestamps, values), min_size=1, max_size=5)


def directory_config(*, tail: int, inline: int, apply: int, fsync: Fsync = COMMIT) -> DirectoryConfig:
    return DirectoryConfig(
        fsync=fsync,
        journal_file_bytes=_JOURNAL_FILE,
        journal_bytes_max=3 * _JOURNAL_FILE,
        checkpoint_bytes=_JOURNAL_FILE,
        round_bytes_max=16 * 1024,
        tail_bytes_max=tail,
        inline_bytes_max=inline,
        loose_inline_bytes_max=inline,
        apply_bytes=apply,
        apply_delay_ms=1,
        free_bytes_min=0,
        index_cache_bytes=0,
    )


DIRECTORIES = [
    directory_config(tail=0, inline=300, apply=1),
    directory_config(tail=0, inline=1 << 20, apply=1),
    directory_config(tail=2000, inline=300, apply=2000),
    directory_config(tail=1 << 20, inline=2000, apply=1 << 20),
    directory_config(tail=0, inline=300, apply=1, fsync=OS),
]
LOG = LogConfig(segment_bytes=4000, index_interval_bytes=300, segment_ms=50_000, retention_ms=NO_LIMIT)


@dataclass(frozen=True, slots=True)
class Expected:
    """A batch as the log must give it back."""

    base: int
    end: int
    data: bytes
    timestamps: tuple[int, ...]


class Model:
    """The list."""

    def __init__(self) -> None:
        self.batches: list[Expected] = []
        self.start = 0
        self.end = 0
        self.trimmed = False

    def place(self, fraction: float) -> int:
        """An offset between start and end."""
        return self.start + round(fraction * (self.end - self.start))

    def truncate(self, offset: int) -> None:
        kept = [batch for batch in self.batches if batch.end <= offset]
        gone = self.batches[len(kept) :]
        self.end = min(offset, gone[0].base) if gone else offset
        self.start = min(self.start, self.end)
        self.batches = kept

    def trim(self, offset: int) -> None:
        self.trimmed = self.trimmed or offset > self.start
        self.start = max(self.start, offset)
        self.batches = [batch for batch in self.batches if batch.end > self.start]

    def boundary(self, fraction: float) -> int:
        """A batch boundary between start and end."""
        ends = [self.start, *(batch.end for batch in self.batches)]
        return ends[round(fraction * (len(ends) - 1))]

    def from_offset(self, offset: int, *, up_to: int) -> list[Expected]:
        return [batch for batch in self.batches if batch.end > offset and batch.end <= up_to]

    def at_time(self, timestamp: int, *, up_to: int) -> tuple[int, int] | None:
        found = (
            (batch.base + place, stamp)
            for batch in self.from_offset(self.start, up_to=up_to)
            for place, stamp in enumerate(batch.timestamps)
            if batch.base + place >= self.start and stamp >= timestamp
        )
        return next(found, None)

    def derived(self) -> tuple[LeaderEpochs, ProducerStates]:
        epochs, producers = LeaderEpochs(), ProducerStates()
        for expected in self.batches:
            batch = read_batch(expected.data)
            epochs.apply(batch.leader_epoch, batch.base_offset)
            producers.apply(batch)
        return epochs, producers


@dataclass(slots=True)
class Wait:
    """Somebody who waits for durability while other things happen."""

    end: int
    future: asyncio.Future[None]
    truncated: bool = False  # what was waited for: before or after it was durable


class LogMachine(RuleBasedStateMachine):
    """The rules that hold for any engine."""

    engine: StorageEngine
    log: PartitionLog

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.model = Model()
        self.appended = 0
        self.epoch = 0
        self.waits: list[Wait] = []

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        with deadline(30):
            return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def all_durable(self) -> None:
        await self.log.wait_durable(Offset(self.model.end))

    def persist(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do it, and again if an earlier truncation reached the files meanwhile, which does not last."""
        for _ in range(3):
            try:
                return self.run(work())
            except LogTruncated:
                continue
        return self.run(work())

    def teardown(self) -> None:
        try:
            if hasattr(self, "engine"):
                self.run(self.engine.close())
        finally:
            self.settle_waits()
            self.loop.close()

    # ---- appending

    @rule(made=records, producer=st.sampled_from([NO_PRODUCER, NO_PRODUCER, 1, 2]))
    def append(self, made: list[tuple[int, int]], producer: int) -> None:
        self._append(made, producer=producer, base=self.model.end, leads=True)

    @rule(made=records, gap=st.sampled_from([0, 1, 7]))
    def follow(self, made: list[tuple[int, int]], gap: int) -> None:
        """As a follower, whose leader may have compacted."""
        self._append(made, producer=NO_PRODUCER, base=self.model.end + gap, leads=False)

    @rule(count=st.integers(2, 20), value=values)
    def append_many(self, count: int, value: int) -> None:
        for _ in range(count):
            self._append(
                [(START_MS + self.appended % 90, value)],
                producer=NO_PRODUCER,
                base=self.model.end,
                leads=True,
            )

    def _append(self, made: list[tuple[int, int]], *, producer: int, base: int, leads: bool) -> None:
        self.appended += 1
        text = b"%06d." % self.appended
        data = build_batch(
            [(stamp, None, (text * (size // len(text) + 1))[:size], ()) for stamp, size in made],
            base_offset=base,
            leader_epoch=self.epoch,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=self.appended if producer >= 0 else -1,
        )
        expected = Expected(base, base + len(made), bytes(data), tuple(stamp for stamp, _ in made))
        if leads:
            given = self.log.append(read_batch(bytearray(data)), leader_epoch=Epoch(self.epoch))
        else:
            given = self.log.append(read_batch(bytearray(data)))
        assert given == base
        self.model.batches.append(expected)
        self.model.end = expected.end

    @rule()
    def another_leader(self) -> None:
        self.epoch += 1

    @rule()
    def wait_durable(self) -> None:
        self.run(self.all_durable())
        assert self.log.durable_offset == self.model.end

    @rule(gives_up=st.booleans())
    def wait_meanwhile(self, gives_up: bool) -> None:
        wait = self.run(self._begin_wait())
        if gives_up:
            wait.future.cancel()
        else:
            self.waits.append(wait)

    async def _begin_wait(self) -> Wait:
        return Wait(self.model.end, self.log.wait_durable(Offset(self.model.end)))

    def settle_waits(self) -> None:
        """The process ends: nobody waits any more."""
        for wait in self.waits:
            if wait.future.done():
                wait.future.exception()  # else asyncio reports it as never retrieved
            else:
                wait.future.cancel()
        self.waits.clear()

    # ---- reading

    @rule(
        fraction=st.floats(0, 1),
        limit=st.floats(0, 1),
        bytes_max=st.sampled_from([0, 100, 500, 3000, 1 << 20]),
    )
    def read(self, fraction: float, limit: float, bytes_max: int) -> None:
        """Up to a batch boundary, durable or not."""
        up_to = Offset(self.model.boundary(limit))
        offset = Offset(self.model.place(fraction))
        at_once = self.log.read_nowait(offset, bytes_max=bytes_max, up_to=up_to)
        _, data = self._read(offset, bytes_max=bytes_max, up_to=up_to)
        if at_once is not None:
            with suppress(LogTruncated):
                hot = self.run(load_extents(at_once))
                self._check_read(at_once, hot, offset=offset, bytes_max=bytes_max, up_to=up_to)
                assert hot.startswith(data) or data.startswith(hot)

    def _read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> tuple[Slice, bytes]:
        found, data = self.persist(lambda: self._load(offset, bytes_max, up_to))
        self._check_read(found, data, offset=offset, bytes_max=bytes_max, up_to=up_to)
        return found, data

    async def _load(self, offset: Offset, bytes_max: int, up_to: Offset) -> tuple[Slice, bytes]:
        found = await self.log.read(offset, bytes_max=bytes_max, up_to=up_to)
        return found, await load_extents(found)

    def _check_read(self, found: Slice, data: bytes, *, offset: int, bytes_max: int, up_to: int) -> None:
        """Whole batches from `offset` up to the limit, not too many, and at least one if there is any."""
        wanted = self.model.from_offset(offset, up_to=up_to)
        count = len(list(iter_batches(data)))
        assert data == b"".join(batch.data for batch in wanted[:count])
        assert count <= 1 or len(data) <= bytes_max
        assert count or not wanted
        # Where nothing lies between, it does not matter on which side of a gap the next read goes on.
        earliest = wanted[count - 1].end if count else offset
        latest = wanted[count].base if count < len(wanted) else max(up_to, offset)
        assert earliest <= found.next_offset <= latest

    @rule(bytes_max=st.sampled_from([1, 700, 1 << 20]))
    def read_everything(self, bytes_max: int) -> None:
        self.run(self.all_durable())
        seen, offset, durable = b"", self.log.start_offset, self.log.durable_offset
        while offset < durable:
            found, data = self._read(offset, bytes_max=bytes_max, up_to=durable)
            assert found.next_offset > offset, f"a read at {offset} leads nowhere"
            seen, offset = seen + data, found.next_offset
        assert seen == b"".join(batch.data for batch in self.model.batches)

    @rule(below=st.integers(1, 5), above=st.integers(1, 5))
    def read_outside(self, below: int, above: int) -> None:
        up_to = self.log.durable_offset
        for offset in (self.model.start - below, self.model.end + above):
            with pytest.raises(OffsetOutOfRange) as refused:
                self.log.read_nowait(Offset(offset), bytes_max=100, up_to=up_to)
            assert (refused.value.start, refused.value.end) == (self.model.start, up_to)
            with pytest.raises(OffsetOutOfRange):
                self.run(self.log.read(Offset(offset), bytes_max=100, up_to=up_to))

    @rule(timestamp=st.integers(START_MS - 1, START_MS + 102), limit=st.floats(0, 1))
    def find_timestamp(self, timestamp: int, limit: float) -> None:
        """Up to a batch boundary, durable or not."""
        up_to = Offset(self.model.boundary(limit))
        found = self.persist(lambda: self.log.find_timestamp(timestamp, up_to=up_to))
        assert found == self.model.at_time(timestamp, up_to=up_to)

    # ---- cutting

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.model.place(fraction)
        self.persist(lambda: self.log.truncate(Offset(offset)))
        if offset < self.model.end:
            self.model.truncate(offset)
            for wait in self.waits:
                wait.truncated = wait.truncated or wait.end > self.model.end

    @rule(back=st.integers(1, 4))
    def truncate_a_little(self, back: int) -> None:
        self.truncate((1 - back / span) if (span := self.model.end - self.model.start) > back else 0.0)

    @rule(made=records, back=st.integers(1, 4))
    def truncate_what_is_waited_for(self, made: list[tuple[int, int]], back: int) -> None:
        self.append(made, NO_PRODUCER)
        self.wait_meanwhile(gives_up=False)
        self.truncate_a_little(back)

    @rule(back=st.integers(1, 40), places=st.lists(st.floats(0, 1), min_size=2, max_size=6))
    def read_while_the_files_are_cut(self, back: int, places: list[float]) -> None:
        """Readers of several segments come together, while a truncation is on its way into the files."""
        self.truncate_a_little(back)
        end = self.log.end_offset
        offsets = [Offset(self.model.place(fraction)) for fraction in places]
        found = self.persist(lambda: self._load_all(offsets, end))
        for offset, (piece, data) in zip(offsets, found, strict=True):
            self._check_read(piece, data, offset=offset, bytes_max=500, up_to=end)

    async def _load_all(self, offsets: list[Offset], up_to: Offset) -> list[tuple[Slice, bytes]]:
        return await asyncio.gather(*(self._load(offset, 500, up_to) for offset in offsets))

    @rule(fraction=st.floats(0, 1))
    def trim(self, fraction: float) -> None:
        self.run(self.all_durable())
        offset = self.model.place(fraction)
        self.run(self.log.trim(Offset(offset)))
        self.model.trim(offset)

    # ---- time

    @rule(ms=st.sampled_from([10, 60_000]))
    def maintain(self, ms: int) -> None:
        self.clock.advance(ms)
        self.run(self.engine.maintain())

    # ---- what always holds

    @invariant()
    def offsets_are_in_order(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.model.start, self.model.end)
        assert self.model.start <= self.log.durable_offset <= self.model.end

    @invariant()
    def whoever_waits_is_told_in_time(self) -> None:
        """Neither too early nor never; of what was truncated, that it was, unless it had been durable."""
        for wait in self.waits:
            if not wait.future.done():
                assert not wait.truncated
                assert self.log.durable_offset < wait.end
            elif wait.future.exception() is not None:
                assert wait.truncated
                assert isinstance(wait.future.exception(), LogTruncated)
            else:
                assert wait.truncated or self.log.durable_offset >= wait.end

    @invariant()
    def derived_state_is_that_of_the_batches(self) -> None:
        """Once something was trimmed the engines may remember more of it than the batches tell."""
        if hasattr(self, "log") and not self.model.trimmed:
            assert (self.log.epochs, self.log.producers) == self.model.derived()


class MemoryMachine(LogMachine):
    @initialize()
    def open(self) -> None:
        self.engine = MemoryStorage(clock=self.clock)
        self.log = self.run(self.engine.create(PARTITION, LOG))


class SegmentMachine(LogMachine):
    """And the rules of an engine that outlives its process. How it is opened and ended is the subclass's."""

    engine: SegmentStorage
    directory: DirectoryConfig

    async def open_engine(self) -> SegmentStorage:
        raise NotImplementedError

    def drop_engine(self, *, power_cut: bool) -> None:
        """End the process, and maybe the machine: nothing is settled before."""
        raise NotImplementedError

    def start(self, directory: DirectoryConfig) -> None:
        self.directory = directory
        self.engine = self.run(self.open_engine())
        self.log = self.run(self.engine.create(PARTITION, LOG))

    @rule()
    def checkpoint(self) -> None:
        self.run(self.engine.checkpoint())

    @rule()
    def wait_applied(self) -> None:
        self.run(self.all_durable())
        self.run(self.engine.wait_applied())

    @rule()
    def reopen(self) -> None:
        self.run(self.engine.close())
        self._come_back(least=self.model.end)

    @rule()
    def crash(self) -> None:
        least = self.log.durable_offset
        self.drop_engine(power_cut=False)
        self._come_back(least=least)

    @rule()
    def cut_the_power(self) -> None:
        """What waited for its sync is there again, and what did not wait once a checkpoint has passed it."""
        if self.directory.fsync != COMMIT:
            self.run(self.all_durable())
            self.run(self.engine.checkpoint())
        least = self.log.durable_offset
        self.drop_engine(power_cut=True)
        self._come_back(least=least)

    def _come_back(self, *, least: int) -> None:
        """What was acknowledged is there; of the rest, some number of the first batches."""
        self.settle_waits()
        self.engine = self.run(self.open_engine())
        log = self.engine.get(PARTITION)
        assert log is not None
        self.engine.configure(PARTITION, LOG)
        self.log = log
        assert log.damaged == -1
        assert least <= log.end_offset <= self.model.end
        assert log.durable_offset == log.end_offset
        ends = [batch.end for batch in self.model.batches]
        if log.end_offset < self.model.end:
            place = bisect.bisect_left(ends, log.end_offset)
            assert log.end_offset in (least, *ends[place : place + 1])
            self.model.truncate(log.end_offset)
        self.read_everything(1000)

    @invariant()
    def tails_are_counted(self) -> None:
        if hasattr(self, "engine"):
            directory = self.engine.directory
            assert directory.tail_bytes == sum(log.tail.bytes for log in directory.logs.values()) >= 0


class SimulatedMachine(SegmentMachine):
    """Time, disk and chance come out of a seed."""

    def __init__(self) -> None:
        super().__init__()
        self.loop.close()
        self.loop = SimulatedLoop()

    @initialize(directory=st.sampled_from(DIRECTORIES), seed=st.integers(0, 1 << 16))
    def open(self, directory: DirectoryConfig, seed: int) -> None:
        self.disk = SimulatedDisk(random.Random(seed))
        self.start(directory)

    async def open_engine(self) -> SegmentStorage:
        engine = SegmentStorage(self.disk, "sim", config=self.directory, clock=self.clock, rng=self.disk.rng)
        await engine.start()
        return engine

    def drop_engine(self, *, power_cut: bool) -> None:
        started_s = self.loop.time()
        self.loop.close()
        if power_cut:
            self.disk.power_cut()
        else:
            self.disk.kill()
        self.loop = SimulatedLoop(started_s=started_s)


class RealMachine(SegmentMachine):
    """Real files, real syncs and real threads, so that no two runs are quite the same."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="tailrace-model-")

    @initialize(directory=st.sampled_from(DIRECTORIES))
    def open(self, directory: DirectoryConfig) -> None:
        self.start(directory)

    async def open_engine(self) -> SegmentStorage:
        return await SegmentStorage.open(self.path, config=self.directory, clock=self.clock, owns_loop=True)

    def drop_engine(self, *, power_cut: bool) -> None:
        self.run(self.engine._let_go())

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.path)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """An index that is made again after a crash is nothing to report here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# The default run plays the same steps every time, so that a change is judged by what it changed; the long one
# goes where nobody has been.
DEFAULT = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    print_blob=True,
    derandomize=True,
)
REAL = settings(DEFAULT, max_examples=30)
HEAVY = settings(DEFAULT, max_examples=1200, derandomize=False)


def test_the_memory_log_is_a_list() -> None:
    run_state_machine_as_test(MemoryMachine, settings=DEFAULT)


def test_the_segment_log_is_a_list() -> None:
    run_state_machine_as_test(SimulatedMachine, settings=DEFAULT)


@pytest.mark.slow
def test_the_segment_log_on_real_files_is_a_list() -> None:
    run_state_machine_as_test(RealMachine, settings=REAL)


@pytest.mark.heavy
def test_the_memory_log_is_a_list_for_long() -> None:
    run_state_machine_as_test(MemoryMachine, settings=HEAVY)


@pytest.mark.heavy
def test_the_segment_log_is_a_list_for_long() -> None:
    run_state_machine_as_test(SimulatedMachine, settings=HEAVY)


@pytest.mark.heavy
def test_the_segment_log_on_real_files_is_a_list_for_long() -> None:
    run_state_machine_as_test(RealMachine, settings=HEAVY)
