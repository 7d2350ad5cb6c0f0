"""One partition as its headers, its index files and its snapshots tell it."""

from __future__ import annotations

from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.index import NO_TIMESTAMP
from tailrace.storage.segment.inspection.expectation import ExpectedPartition
from tailrace.storage.segment.inspection.layout import Layout, plan_layout
from tailrace.storage.segment.inspection.partition_check import (
    STATE_REBUILT,
    judge_layout,
    judge_missing_directory,
    read_solid_index,
)
from tailrace.storage.segment.inspection.report import (
    Findings,
    PartitionReport,
    SegmentReport,
    SegmentState,
    SnapshotReport,
)
from tailrace.storage.segment.inspection.segment_check import RESTORE
from tailrace.storage.segment.inspection.source import Source, SourceFile
from tailrace.storage.segment.inspection.stored_index import StoredIndex, read_stored_index
from tailrace.storage.segment.inspection.walk import OffsetTrack, WalkBroken, walk_headers
from tailrace.storage.segment.names import numbered, read_partition_directory
from tailrace.storage.segment.plan import Plan
from tailrace.storage.segment.snapshot import read_snapshot

_NO_INDEX = StoredIndex(None, False, "none")


def describe_partition(
    source: Source, path: str, expected: ExpectedPartition, findings: Findings
) -> PartitionReport:
    """Everything about one partition directory; what is wrong goes into `findings`."""
    plan = expected.plan
    segments: tuple[SegmentReport, ...] = ()
    snapshots: tuple[SnapshotReport, ...] = ()
    try:
        layout = plan_layout(source.names(path), plan)
    except FileNotFoundError:
        judge_missing_directory(path, plan, findings)
    else:
        judge_layout(path, layout, expected, findings)
        segments = tuple(
            _describe_segment(source, path, base, layout, plan, findings) for base in layout.segments
        )
        snapshots = tuple(
            _describe_snapshot(source, path, offset, plan, findings) for offset in layout.snapshots
        )
    known = read_partition_directory(path)
    assert known is not None, "only partition directories are described"
    row = plan.row if plan else None
    return PartitionReport(
        path=path,
        topic_id=known[0].topic_id,
        partition=known[0].partition,
        life=known[1],
        start=plan.shape.start if plan else None,
        end=plan.shape.end if plan else None,
        checkpoint_end=row.end if row else None,
        quarantined_from=plan.damaged if plan and plan.damaged != NONE else None,
        segments=segments,
        snapshots=snapshots,
    )


# ---- segments


def _describe_segment(
    source: Source, directory: str, base: int, layout: Layout, plan: Plan | None, findings: Findings
) -> SegmentReport:
    path = f"{directory}/{numbered(base, 'log')}"
    state, stored, promised = _read_index(source, path, base, layout, plan, findings)
    track = OffsetTrack(base=base, limit=None)
    size = source.size(path)
    try:
        with source.open(path) as file:
            _walk(file, path, size=size, promised=promised, track=track, findings=findings)
    except OSError as error:
        if promised:  # else the journal is about to create it
            findings.problem(path, f"cannot be read: {error.strerror}", RESTORE, first_offset=base)
    return SegmentReport(
        path=path,
        base=base,
        state=state,
        bytes=size,
        batches=track.batches,
        records=track.records,
        first_offset=track.first_offset,
        next_offset=track.next_offset,
        max_timestamp_ms=None if track.max_timestamp == NO_TIMESTAMP else track.max_timestamp,
        index=stored.state,
        spans=len(stored.index) if stored.index is not None else 0,
    )


def _read_index(
    source: Source, path: str, base: int, layout: Layout, plan: Plan | None, findings: Findings
) -> tuple[SegmentState, StoredIndex, int]:
    """What kind of segment it is, its index, and how many of its bytes must be there."""
    if base in layout.sealed:
        stored = read_stored_index(source, path, base=base, state=None, findings=findings)
        return "sealed", stored, stored.index.end if stored.index is not None else source.size(path)
    if plan is None:
        return "unknown", _NO_INDEX, 0
    if base != layout.solid or plan.row is None:
        return "journalled", _NO_INDEX, 0
    return "active", read_solid_index(source, path, base, plan, plan.row, findings), plan.solid[1]


def _walk(
    file: SourceFile, path: str, *, size: int, promised: int, track: OffsetTrack, findings: Findings
) -> None:
    """Count what the headers tell, up to one that makes no sense; that matters below `promised` only."""
    if size < promised:
        message = f"it ends at byte {size}, and {promised} bytes were written"
        findings.problem(path, message, RESTORE, position=size, end=promised)
    broken, wrong = size, None
    try:
        for position, batch in walk_headers(file, begin=0, end=size):
            if wrong := track.take(batch):
                broken = position
                break
    except WalkBroken as error:
        broken, wrong = error.position, str(error)
    if wrong and broken < promised:
        findings.problem(
            path,
            f"no sound batch begins here: {wrong}",
            RESTORE,
            position=broken,
            end=promised,
            first_offset=track.next_offset,
        )


# ---- snapshots


def _describe_snapshot(
    source: Source, directory: str, offset: int, plan: Plan | None, findings: Findings
) -> SnapshotReport:
    path = f"{directory}/{numbered(offset, 'snapshot')}"
    try:
        data = source.read_whole(path) or b""
    except OSError as error:
        findings.problem(path, f"cannot be read: {error.strerror}", STATE_REBUILT)
        data = b""
    else:
        if read_snapshot(data) is None:
            findings.problem(path, "its checksum does not hold", STATE_REBUILT, position=0, end=len(data))
    found = read_snapshot(data)
    return SnapshotReport(
        path=path,
        offset=offset,
        bytes=len(data),
        epochs=len(found.epochs) if found else None,
        producers=len(found.producers) if found else None,
        current=plan is not None and plan.row is not None and plan.row.snapshot == offset,
    )
