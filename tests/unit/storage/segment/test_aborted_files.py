"""Lists of aborted transactions beside their segments: saved, restored, cut, trimmed, made again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.records import Batch, build_batch, read_batch, write_marker
from tailrace.storage import OS, LogConfig
from tailrace.storage.aborted import AbortedEntry, read_aborted
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop

CONFIG = DirectoryConfig(
    journal_file_bytes=64 * 1024,
    journal_bytes_max=3 * 64 * 1024,
    checkpoint_bytes=64 * 1024,
    round_bytes_max=20_000,
    checkpoint_interval_ms=1 << 30,
    inline_bytes_max=2000,
    loose_inline_bytes_max=500,
    free_bytes_min=0,
)
PARTITION = PartitionId(UUID(int=7), 0)
A, B = 7, 8
FOUR_BATCHES = 300  # bytes of a segment


class Story:
    """A log, and what it must say of aborted transactions."""

    def __init__(self, log: SegmentLog) -> None:
        self.log = log
        self._sequences: dict[int, int] = {}

    def data(self, producer_id: int = A) -> Batch:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        made = build_batch(
            [(1000, b"k", b"v", ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        return self._append(read_batch(made))

    def end(self, producer_id: int = A, *, commit: bool = False) -> Batch:
        return self._append(
            write_marker(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=1000)
        )

    def plain(self, size: int = 1) -> Batch:
        return self._append(read_batch(build_batch([(1000, b"k", bytes(size), ())])))

    def _append(self, batch: Batch) -> Batch:
        self.log.append(batch, leader_epoch=Epoch(0))
        return batch

    def entries(self) -> list[AbortedEntry]:
        return list(self.log.aborted_list)


class Stage:
    """One data directory that is opened again and again."""

    def __init__(self, seed: int = 1, *, segment_bytes: int = 1 << 20, **settings: object) -> None:
        self.disk = SimulatedDisk(random.Random(seed))
        self.settings = LogConfig(segment_bytes=segment_bytes, **settings)  # type: ignore[arg-type]

    def play(
        self, scenario: Callable[[SegmentStorage, Story], Awaitable[None]], *, power_cut: bool = False
    ) -> None:
        """Open, play, and end: by closing, or by a power cut."""

        async def main() -> None:
            storage = SegmentStorage(
                self.disk, "sim", config=CONFIG, clock=SimulatedClock(loop), rng=self.disk.rng
            )
            await storage.start()
            log = storage.get(PARTITION)
            if log is None:
                log = await storage.create(PARTITION, self.settings)
                await storage.wait_applied()
            storage.configure(PARTITION, self.settings)
            assert isinstance(log, SegmentLog)
            await scenario(storage, Story(log))
            if not power_cut:
                await storage.close()

        with SimulatedLoop() as loop:
            loop.run(main())
        if power_cut:
            self.disk.power_cut(survival_chance=0.0)

    def expect(self, entries: list[AbortedEntry], *, first_open: int | None = None) -> None:
        """A start finds these, and no other."""

        async def look(storage: SegmentStorage, story: Story) -> None:
            assert story.entries() == entries
            assert list(story.log.applied_aborted) == entries
            assert story.log.producers.first_open == first_open
            assert story.log.producers == story.log.applied_producers

        self.play(look)

    def paths(self, suffix: str) -> list[str]:
        return sorted(path for path in self.disk.paths() if path.endswith(suffix))


async def two_aborted(storage: SegmentStorage, story: Story) -> None:
    """Offsets 0 to 6: A is aborted at 3 and 6, B commits at 4."""
    story.data(A)
    story.data(B)
    story.plain()
    story.end(A)
    story.end(B, commit=True)
    story.data(A)
    story.end(A)
    await story.log.wait_durable(story.log.end_offset)


TWO = [AbortedEntry(A, 0, 3, 1), AbortedEntry(A, 5, 6, 7)]


def test_a_log_tells_what_a_reader_leaves_out() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        assert list(story.log.aborted(Offset(0), Offset(7))) == [(A, 0), (A, 5)]
        assert list(story.log.aborted(Offset(2), Offset(3))) == [(A, 0)]
        assert list(story.log.aborted(Offset(4), Offset(5))) == []
        assert story.entries() == TWO

    Stage().play(scenario)


@pytest.mark.parametrize("segment_bytes", [FOUR_BATCHES, 1 << 20], ids=["segments", "one segment"])
@pytest.mark.parametrize("power_cut", [False, True], ids=["closed", "power cut"])
@pytest.mark.parametrize("checkpointed", [False, True], ids=["from the journal", "from the files"])
def test_lists_survive(segment_bytes: int, power_cut: bool, checkpointed: bool) -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        story.data(B)
        await story.log.wait_durable(story.log.end_offset)
        if checkpointed:
            await storage.checkpoint()

    stage = Stage(segment_bytes=segment_bytes)
    stage.play(scenario, power_cut=power_cut)
    stage.expect(TWO, first_open=7)
    stage.expect(TWO, first_open=7)


def test_a_list_lies_beside_the_segment_of_the_marker() -> None:
    stage = Stage(segment_bytes=FOUR_BATCHES)
    stage.play(two_aborted)
    found = {}
    for path in stage.paths(".aborted"):
        base = int(path.rpartition("/")[2].removesuffix(".aborted"))
        found[base] = read_aborted(stage.disk.content(path), base)
    segments = [int(path.rpartition("/")[2].removesuffix(".log")) for path in stage.paths(".log")]
    assert len(segments) > 1
    expected: dict[int, list[AbortedEntry]] = {}
    for entry in TWO:
        expected.setdefault(max(base for base in segments if base <= entry.marker_offset), []).append(entry)
    assert found == expected


def test_a_log_without_aborted_transactions_has_no_such_file() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        story.data()
        story.end(commit=True)
        story.plain()
        await story.log.wait_durable(story.log.end_offset)

    stage = Stage()
    stage.play(scenario)
    assert stage.paths(".aborted") == []


def test_markers_behind_the_newest_snapshot_are_taken_from_the_log() -> None:
    """A checkpoint wrote the list and no snapshot: the power went in between."""

    async def first(storage: SegmentStorage, story: Story) -> None:
        story.data()
        story.end()
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()
        story.data()
        story.end()
        await story.log.wait_durable(story.log.end_offset)
        await storage.wait_applied()

        async def no_more(*_: object, **__: object) -> None:
            raise OSError(28, "no space left")

        storage.directory.snapshots.save = no_more  # type: ignore[method-assign]
        await storage.checkpoint()

    stage = Stage()
    stage.play(first, power_cut=True)
    (path,) = stage.paths(".aborted")
    assert len(read_aborted(stage.disk.content(path), 0) or ()) == 2
    stage.expect([AbortedEntry(A, 0, 1, 2), AbortedEntry(A, 2, 3, 4)])


@pytest.mark.parametrize("damage", ["missing", "flipped"])
@pytest.mark.parametrize("segment_bytes", [FOUR_BATCHES, 1 << 20], ids=["segments", "one segment"])
def test_a_damaged_list_is_made_again_from_the_log(damage: str, segment_bytes: int) -> None:
    stage = Stage(segment_bytes=segment_bytes)
    stage.play(two_aborted)
    paths = stage.paths(".aborted")
    if damage == "missing":
        _remove(stage.disk, paths[0])
    else:
        stage.disk.flip_bit(paths[0], position=30, bit=3)
    stage.expect(TWO)
    for path in paths:
        base = int(path.rpartition("/")[2].removesuffix(".aborted"))
        assert read_aborted(stage.disk.content(path), base), "the list is whole again"
    stage.expect(TWO)


def _remove(disk: SimulatedDisk, path: str) -> None:
    async def main() -> None:
        await disk.remove(path)
        await disk.sync_directory(path.rpartition("/")[0])

    with SimulatedLoop() as loop:
        loop.run(main())


def test_a_damaged_snapshot_costs_no_transaction() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        story.data(B)
        await story.log.wait_durable(story.log.end_offset)

    stage = Stage(segment_bytes=FOUR_BATCHES)
    stage.play(scenario)
    for path in stage.paths(".snapshot"):
        stage.disk.flip_bit(path, position=20, bit=0)
    stage.expect(TWO, first_open=7)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("power_cut", [False, True], ids=["closed", "power cut"])
@pytest.mark.parametrize("segment_bytes", [FOUR_BATCHES, 1 << 20], ids=["segments", "one segment"])
def test_a_truncated_marker_takes_its_entry_along(saved: bool, power_cut: bool, segment_bytes: int) -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        if saved:
            await storage.checkpoint()
        await story.log.truncate(Offset(6))
        assert story.entries() == TWO[:1]
        assert story.log.producers.first_open == 5
        story.plain()
        story.end()
        await story.log.wait_durable(story.log.end_offset)
        assert story.entries() == [TWO[0], AbortedEntry(A, 5, 7, 8)]

    stage = Stage(segment_bytes=segment_bytes)
    stage.play(scenario, power_cut=power_cut)
    stage.expect([TWO[0], AbortedEntry(A, 5, 7, 8)])


def test_a_truncation_that_leaves_no_entry_leaves_none_on_disk() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        await storage.checkpoint()
        await story.log.truncate(Offset(3))
        story.end(commit=True)
        await story.log.wait_durable(story.log.end_offset)

    stage = Stage()
    stage.play(scenario)
    stage.expect([], first_open=1)


def test_a_trim_takes_entries_and_files_along() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        await storage.checkpoint()
        assert len(stage.paths(".aborted")) == 2
        await story.log.trim(Offset(4))
        assert story.entries() == TWO[1:]
        await storage.wait_applied()

    stage = Stage(segment_bytes=FOUR_BATCHES)
    stage.play(scenario)
    assert len(stage.paths(".aborted")) == 1
    stage.expect(TWO[1:])


@pytest.mark.parametrize("size", [1, 3000], ids=["inline", "by reference"])
def test_a_marker_that_was_trimmed_ends_its_transaction_in_recovery(size: int) -> None:
    """The snapshot has the transaction open, and only the journal still knows of the marker."""

    async def scenario(storage: SegmentStorage, story: Story) -> None:
        story.data()
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()
        story.plain(size)
        story.end()
        await story.log.wait_durable(story.log.end_offset)
        await story.log.trim(story.log.end_offset)
        story.plain()
        await story.log.wait_durable(story.log.end_offset)
        await storage.wait_applied()

    stage = Stage(segment_bytes=FOUR_BATCHES)
    stage.play(scenario, power_cut=True)
    stage.expect([])


def test_a_transaction_of_which_nothing_is_left_is_forgotten_in_recovery() -> None:
    """An older snapshot has it open. Its marker may have been trimmed since, and no reader would care."""

    async def scenario(storage: SegmentStorage, story: Story) -> None:
        story.data(A)
        story.data(B)
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()
        story.end(A)
        story.plain()
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()
        await story.log.trim(Offset(3))
        story.data(B)
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()

    stage = Stage()
    stage.play(scenario)
    newest = stage.paths(".snapshot")[-1]
    stage.disk.flip_bit(newest, position=20, bit=0)
    stage.expect([], first_open=4)


def test_a_large_marker_round_by_reference_is_read_in_recovery() -> None:
    """The journal holds the header of such a marker alone: what it decides is in its segment."""

    async def scenario(storage: SegmentStorage, story: Story) -> None:
        story.data()
        story.plain(3000)
        story.end()
        await story.log.wait_durable(story.log.end_offset)

    stage = Stage()
    stage.play(scenario, power_cut=True)
    stage.expect([AbortedEntry(A, 0, 2, 3)])


def test_a_transaction_in_a_loose_topic_survives_a_power_cut() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        story.plain(3000)
        await story.log.wait_durable(story.log.end_offset)
        story.data()
        story.end()
        await story.log.wait_durable(story.log.end_offset)

    stage = Stage(fsync=OS)
    stage.play(scenario, power_cut=True)
    stage.expect([AbortedEntry(A, 1, 2, 3)])


def test_a_cut_holds_the_lists_as_its_snapshot_names_them() -> None:
    async def scenario(storage: SegmentStorage, story: Story) -> None:
        await two_aborted(storage, story)
        cut = await storage.cut()
        story.data()
        story.end()
        await story.log.wait_durable(story.log.end_offset)
        await storage.checkpoint()
        held = [path for path in stage.paths(".aborted") if path.startswith(f"{cut.name}/")]
        assert [read_aborted(stage.disk.content(path), 0) for path in held] == [TWO]
        await storage.remove_cut(cut)

    stage = Stage()
    stage.play(scenario)
