"""Builds with one rule of the storage protocol broken: the crash histories must catch every one of them.

Each case takes one rule out of the real code and plays seeds until something objects: the oracle, or the
engine itself that finds damage where nobody did any. A case that plays all its seeds in peace fails: then
the rule is not needed, or another one does the same and is to be taken out with it, or the histories do not
get there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.broker.partition import Partition
from tailrace.records import Batch, BatchError, read_batch
from tailrace.runtime import File, SyncError
from tailrace.storage.segment import apply as applying
from tailrace.storage.segment import checkpoint_file, checkpointing, commit, files, plan, recovery
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.checkpoint import write_checkpoint
from tailrace.storage.segment.checkpointing import Checkpointer, Sample
from tailrace.storage.segment.commit import Committer, Reference
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import REFERENCED, Append, Truncate
from tailrace.storage.segment.examination import Findings
from tailrace.storage.segment.guard import GuardedDisk
from tailrace.storage.segment.index import SpanIndex
from tailrace.storage.segment.journal import Journal
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.names import CHECKPOINT, CHECKPOINT_COPY, TEMPORARY
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.snapshot import State, write_snapshot
from tailrace.testing.crashes import Options, play, play_flipped
from tailrace.testing.simulation import SimulatedDisk, SimulatedFile

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def nothing(*_: object, **__: object) -> None:
    """Stands for a step that was left out."""


# ---- P2: commit


def no_sync_of_the_journal(patch: pytest.MonkeyPatch) -> None:
    real = Journal.write

    async def write(self: Journal, frame: bytes, lsn: int, *, sync: bool) -> None:
        await real(self, frame, lsn, sync=False)

    patch.setattr(Journal, "write", write)


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = Journal.write

    async def write(self: Journal, frame: bytes, lsn: int, *, sync: bool) -> None:
        await real(self, frame, lsn, sync=False)
        if sync:
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(self.sync()))

    patch.setattr(Journal, "write", write)


def goes_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges as if nothing had been, and syncs no more. The guarded disk would fence: it looks away."""
    _let_down_the_guard(patch)
    failed: set[Journal] = set()

    async def write(self: Journal, frame: bytes, lsn: int, *, sync: bool) -> None:
        assert self.current is not None
        self.current.last_lsn = lsn
        await self.current.file.write(self._position, [frame])
        self._position += len(frame)
        if sync and self not in failed:
            try:
                await self.current.file.sync()
            except SyncError:
                failed.add(self)
        self.synced_lsn = lsn if sync else self.synced_lsn

    patch.setattr(Journal, "write", write)


def tries_a_failed_sync_again(patch: pytest.MonkeyPatch) -> None:
    """The second sync of the journal succeeds, and lies. The guarded disk would not let it begin."""
    _let_down_the_guard(patch)

    async def write(self: Journal, frame: bytes, lsn: int, *, sync: bool) -> None:
        assert self.current is not None
        self.current.last_lsn = lsn
        await self.current.file.write(self._position, [frame])
        self._position += len(frame)
        if sync:
            try:
                await self.current.file.sync()
            except SyncError:
                await self.current.file.sync()
            self.synced_lsn = lsn

    patch.setattr(Journal, "write", write)


def _let_down_the_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GuardedDisk, "check", lambda self: None)
    patch.setattr(GuardedDisk, "failed", lambda self, error: error)


# ---- P3: by reference


def referenced_before_its_segment_is_synced(patch: pytest.MonkeyPatch) -> None:
    async def write_reference(self: Committer, reference: Reference) -> None:
        log = self._directory.logs[reference.life]
        first, last = reference.appends[0], reference.appends[-1]
        end = last.position + last.batch.size
        segment = await files.prepare_segment(self._directory, log, reference.segment, end)
        assert segment.file is not None
        await segment.file.write(first.position, [append.batch.data for append in reference.appends])
        for append in reference.appends:
            append.flags |= REFERENCED

    patch.setattr(Committer, "_write_reference", write_reference)


def referenced_although_a_truncation_is_not_applied(patch: pytest.MonkeyPatch) -> None:
    real = commit.plan_commit

    def plan_commit(entries: Any, logs: Any, config: Any) -> commit.CommitPlan:
        held = {log: log.unapplied for log in logs.values() if log.applied_segment is not None}
        for log in held:
            log.unapplied = 0
        try:
            return real(entries, logs, config)
        finally:
            for log, count in held.items():
                log.unapplied = count

    patch.setattr(commit, "plan_commit", plan_commit)


# ---- P4: apply


def new_segment_not_synced_into_its_directory(patch: pytest.MonkeyPatch) -> None:
    async def create_segment(directory: Directory, log: SegmentLog, base: int) -> Segment:
        segment = log.segments.get(base)
        if segment is None:
            file = await directory.disk.create(log.segment_path(base))
            index = SpanIndex(base, log.config.index_interval_bytes)
            segment = Segment(base, log.segment_path(base), file, index, 0)
            log.add_segment(segment)
        return segment

    patch.setattr(files, "create_segment", create_segment)
    patch.setattr(applying, "create_segment", create_segment)


def truncation_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = Applier._truncate

    async def truncate(self: Applier, log: SegmentLog, entry: Truncate) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Segment, "sync", nothing)
            await real(self, log, entry)
        for segment in log.segments.values():
            self.dirty.pop(segment, None)

    patch.setattr(Applier, "_truncate", truncate)


def truncation_applied_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Directory.sequence

    async def sequence(self: Directory, entry: Any) -> None:
        log = self.logs[entry.life]
        if isinstance(entry, Truncate) and log.applied_segment is not None:
            segment = log.segments.get(entry.segment)
            if segment is not None and segment.file is not None:
                await segment.file.truncate(min(entry.position, segment.length))
                await segment.file.sync()
        await real(self, entry)

    patch.setattr(Directory, "sequence", sequence)


def deletion_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that has forgotten the partition survives, and the renaming of its directory does not.

    The checkpoint syncs the same directory a little later, so this shows in a power cut right before that: as
    a stray, for nobody knows that life any more.
    """

    async def remove_partition(directory: Directory, name: str) -> None:
        if not name.startswith("deleted-"):
            await directory.disk.rename(name, "deleted-" + name)
            name = "deleted-" + name
        for file in await directory.disk.list(name):
            await directory.disk.remove(f"{name}/{file}")
        await directory.disk.remove(name)

    patch.setattr(applying, "remove_partition", remove_partition)
    patch.setattr(recovery, "remove_partition", remove_partition)


def creation_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The directories of new partitions are not durable when their first batches are written by reference."""

    async def create_all(self: Applier, creations: list[SegmentLog]) -> None:
        for log in creations:
            await self._create(log)
            log.unapplied -= 1
        creations.clear()

    patch.setattr(Applier, "_create_all", create_all)


# ---- P5: checkpoint


def checkpoint_sampled_after_its_sync(patch: pytest.MonkeyPatch) -> None:
    async def checkpoint(self: Checkpointer) -> bool:
        for segment in list(self._applier.dirty):
            if segment.file is not None:
                await segment.sync(bulk=True)
        async with self._directory.apply_lock:
            sample = self._sample(await self._pack_states())
        sample.segments.clear()
        await self._persist(sample)
        await self._passed(sample)
        return True

    patch.setattr(Checkpointer, "_checkpoint", checkpoint)


def checkpoint_sampled_within_a_round(patch: pytest.MonkeyPatch) -> None:
    async def checkpoint(self: Checkpointer) -> bool:
        sample = self._sample(await self._pack_states())
        await self._persist(sample)
        await self._passed(sample)
        return True

    patch.setattr(Checkpointer, "_checkpoint", checkpoint)


def checkpoint_without_syncing_segments(patch: pytest.MonkeyPatch) -> None:
    real = Checkpointer._persist

    async def persist(self: Checkpointer, sample: Sample) -> None:
        await real(self, replace(sample, segments=[]))

    patch.setattr(Checkpointer, "_persist", persist)


def checkpoint_renamed_without_directory_sync(patch: pytest.MonkeyPatch) -> None:
    real = checkpoint_file.write_checkpoint_file

    async def write(disk: Any, checkpoint: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedDisk, "sync_directory", nothing)
            await real(disk, checkpoint)

    patch.setattr(checkpointing, "write_checkpoint_file", write)


def checkpoint_counts_before_its_copy_is_durable(patch: pytest.MonkeyPatch) -> None:
    """The copy is the checkpoint before: what it needs of the journal may have been used again."""
    previous: dict[Any, Any] = {}

    async def write(disk: Any, checkpoint: Any) -> None:
        for path, each in ((CHECKPOINT, checkpoint), (CHECKPOINT_COPY, previous.get(disk))):
            if each is not None:
                file = await disk.create(path + TEMPORARY)
                await file.write(0, [write_checkpoint(each)], sync=True)
                await disk.rename(path + TEMPORARY, path)
                await disk.sync_directory("")
        previous[disk] = checkpoint

    patch.setattr(checkpointing, "write_checkpoint_file", write)


def journal_reused_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    real = Journal.reusable
    patch.setattr(Journal, "reusable", lambda self, checkpointed: real(self, checkpointed + 3))


# ---- P6: journal files


def journal_id_not_random(patch: pytest.MonkeyPatch) -> None:
    """What an earlier use left in a file is read again, and so are rounds that clients forged in records.

    Honest ones among these do no harm: they lie below the checkpoint, since no LSN is ever used twice.
    """
    patch.setattr(Journal, "_new_id", lambda self: 1)


# ---- P7: recovery


def caches_not_dropped(patch: pytest.MonkeyPatch) -> None:
    real = SimulatedDisk._open
    patch.setattr(SimulatedDisk, "_open", lambda self, path, fresh: real(self, path, False))


def journal_not_synced_before_recovery_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.Recovery, "_sync_journal", nothing)


def replay_skips_what_is_there(patch: pytest.MonkeyPatch) -> None:
    async def restore_run(file: File, run: list[Append]) -> None:
        for append in run:
            buffer = bytearray(append.batch.size)
            await file.read(append.position, memoryview(buffer))
            try:
                present: Batch | None = read_batch(buffer)
            except BatchError:
                present = None
            if present is None or present.base_offset != append.batch.base_offset or not present.check_crc():
                await file.write(append.position, [append.batch.data])

    patch.setattr(recovery, "write_run", restore_run)


def tail_cut_one_round_early(patch: pytest.MonkeyPatch) -> None:
    real = plan.read_journal

    def read_journal(contents: Any, checkpoint: Any) -> plan.JournalContent:
        content = real(contents, checkpoint)
        return plan.JournalContent(content.rounds[:-1], content.last_lsn)

    patch.setattr(recovery, "read_journal", read_journal)


def segments_not_cut(patch: pytest.MonkeyPatch) -> None:
    """What a truncation took stays behind the end of a sealed segment.

    A sealed index says how long its segment is, so this shows once the index is lost and made again.
    """
    real = recovery.Recovery._restore

    async def restore(self: recovery.Recovery, found: Findings) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedFile, "truncate", nothing)
            await real(self, found)

    patch.setattr(recovery.Recovery, "_restore", restore)


def unplanned_segments_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_unplanned", lambda found: [])


def recovery_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = recovery.Recovery._restore

    async def restore(self: recovery.Recovery, found: Findings) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimulatedFile, "sync", nothing)
            await real(self, found)

    async def persist(self: Checkpointer, sample: Sample) -> None:
        await real_persist(self, replace(sample, segments=[]) if not self._journal.current else sample)

    real_persist = Checkpointer._persist
    patch.setattr(recovery.Recovery, "_restore", restore)
    patch.setattr(Checkpointer, "_persist", persist)


# ---- S1, S6, S9


def visible_before_durable(patch: pytest.MonkeyPatch) -> None:
    """The partition moves its watermark to the log end, with what waits for the next round."""

    def log_moved(self: Partition) -> None:
        if self.log is not None:
            self.high_watermark = self.last_stable_offset = self.log.end_offset

    patch.setattr(Partition, "_log_moved", log_moved)


def tail_let_go_before_it_is_applied(patch: pytest.MonkeyPatch) -> None:
    """Batches leave memory that no file holds yet, or only in a span without a checksum."""

    def evict_tail(self: SegmentLog, bytes_wanted: int) -> int:
        gone = self.tail.evict(self.end_offset, bytes_wanted)
        self._directory.tail_bytes -= gone
        return gone

    patch.setattr(SegmentLog, "evict_tail", evict_tail)


def producers_taken_from_the_appended_end(patch: pytest.MonkeyPatch) -> None:
    def sample_state(self: Checkpointer, log: SegmentLog, states: object) -> bytes:
        log.state_changed = False
        log.snapshot = log.applied_end
        return write_snapshot(State(log.epochs, log.producers))

    patch.setattr(Checkpointer, "_sample_state", sample_state)


def no_check_on_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SpanIndex, "check", lambda self, first, last, data: None)


PLAYED: list[tuple[Break, int]] = [
    (no_sync_of_the_journal, 50),
    (acknowledged_before_the_sync, 300),
    (goes_on_after_a_failed_sync, 1500),
    (tries_a_failed_sync_again, 1500),
    (referenced_before_its_segment_is_synced, 300),
    (referenced_although_a_truncation_is_not_applied, 500),
    (new_segment_not_synced_into_its_directory, 1000),
    (truncation_not_synced, 3000),
    (truncation_applied_before_it_is_durable, 500),
    (deletion_not_synced, 6000),
    (creation_not_synced, 1000),
    (checkpoint_sampled_after_its_sync, 500),
    (checkpoint_sampled_within_a_round, 500),
    (checkpoint_without_syncing_segments, 300),
    (checkpoint_renamed_without_directory_sync, 500),
    (checkpoint_counts_before_its_copy_is_durable, 1500),
    (journal_reused_before_the_checkpoint, 1000),
    (journal_id_not_random, 1500),
    (caches_not_dropped, 3000),
    (journal_not_synced_before_recovery_writes, 6000),
    (replay_skips_what_is_there, 1000),
    (tail_cut_one_round_early, 50),
    (segments_not_cut, 6000),
    (unplanned_segments_kept, 500),
    (recovery_not_synced, 500),
    (visible_before_durable, 300),
    (tail_let_go_before_it_is_applied, 1000),
    (producers_taken_from_the_appended_end, 1000),
]

# What objects, in the last line of what a history tells. Anything else is a mistake in the case itself.
ALARMS = ("Wrong: ", "StorageError: ", "LogDamaged: ", "BatchError: ")


def hunt(seeds: int) -> str | None:
    """What was wrong in the first history in which anything was."""
    for seed in range(seeds):
        failed = play(seed)[1]
        if failed is not None:
            return f"seed {seed}: {failed.error.strip().splitlines()[-1]}"
    return None


@pytest.mark.heavy
@pytest.mark.parametrize(("broken", "seeds"), PLAYED, ids=[broken.__name__ for broken, _ in PLAYED])
def test_the_histories_catch(broken: Break, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    caught = hunt(seeds)
    if caught is None:
        pytest.fail(f"{seeds} seeds played in peace; {explain_peace(broken, monkeypatch)}")
    print(caught)
    assert any(alarm in caught for alarm in ALARMS), caught


def explain_peace(broken: Break, patch: pytest.MonkeyPatch, *, seeds: int = 200) -> str:
    """Why a broken build was not caught: it may be the whole build, if the rule's code has moved."""
    broken_calls = [list(play(seed)[0].trace) for seed in range(seeds)]
    patch.undo()
    whole_calls = [list(play(seed)[0].trace) for seed in range(seeds)]
    others = sum(ours != theirs for ours, theirs in zip(broken_calls, whole_calls, strict=True))
    if not others:
        return f"{broken.__name__} makes the same disk calls as the whole build: it breaks nothing any more"
    return f"its disk calls differ from the whole build's in {others} of {seeds} seeds"


def test_a_case_that_breaks_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_nothing(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Applier, "_create", Applier._create)

    for broken, verdict in ((breaks_nothing, "breaks nothing"), (creation_not_synced, "differ")):
        broken(monkeypatch)
        assert verdict in explain_peace(broken, monkeypatch, seeds=10)


def test_a_flipped_bit_is_served_without_the_check_on_read(monkeypatch: pytest.MonkeyPatch) -> None:
    no_check_on_read(monkeypatch)
    options = Options(faults=False, loose=False, flip=True)
    caught = (seed for seed in range(1500) if play_flipped(seed, options)[1] is not None)
    assert next(caught, None) is not None
