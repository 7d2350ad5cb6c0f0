"""Every byte of one partition: segments with their indexes, snapshots, and what the journal refers to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tailrace.records import HEADER_BYTES
from tailrace.storage.aborted import read_aborted
from tailrace.storage.segment.checkpoint import NONE, Row
from tailrace.storage.segment.entry import REFERENCED, Append
from tailrace.storage.segment.index import IndexState
from tailrace.storage.segment.inspection.expectation import ExpectedPartition
from tailrace.storage.segment.inspection.layout import Layout, explain_unplanned, plan_layout
from tailrace.storage.segment.inspection.progress import Progress
from tailrace.storage.segment.inspection.report import Findings
from tailrace.storage.segment.inspection.segment_check import RESTORE, SegmentCheck, SegmentClaim
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.inspection.stored_index import StoredIndex, read_stored_index
from tailrace.storage.segment.inspection.walk import OffsetTrack, WalkBroken, walk_batches
from tailrace.storage.segment.label import read_label
from tailrace.storage.segment.names import LABEL, numbered, read_partition_directory
from tailrace.storage.segment.plan import Plan
from tailrace.storage.segment.snapshot import read_snapshot

LIST_REBUILT = "Nothing is lost: the next start makes the lists of aborted transactions again from the log"
STATE_REBUILT = "Nothing is lost: the state is made again from the log. Remove the file"
_CUT = "Keep a copy of the file, then cut it to that length"
_LABEL_WRITTEN = "Nothing is lost: the next start writes it again"
_LABEL_BYTES_MAX = 64 << 10
_GAP = "Restore the segment that is missing from a copy or a replica"


Wanted = Callable[[str], bool]
"""Whether a segment or a snapshot is to be gone through, by its path."""


def everything(path: str) -> bool:  # noqa: ARG001
    return True


@dataclass(slots=True)
class Counts:
    """What was gone through."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, other: Counts) -> None:
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes


@dataclass(frozen=True, slots=True)
class Seam:
    """Offsets between a segment and the next that neither holds."""

    path: str
    first_offset: int
    next_offset: int


class PartitionCheck:
    """One run over one partition directory."""

    def __init__(
        self,
        source: Source,
        path: str,
        expected: ExpectedPartition,
        *,
        findings: Findings,
        progress: Progress,
        wanted: Wanted = everything,
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._path = path
        self._expected = expected
        self._findings = findings
        self._progress = progress
        self._seams: list[Seam] = []
        self._compacted = False
        self._counts = Counts()

    def run(self) -> Counts:
        plan = self._expected.plan
        try:
            names = self._source.names(self._path)
        except FileNotFoundError:
            judge_missing_directory(self._path, plan, self._findings)
            return self._counts
        layout = plan_layout(names, plan)
        judge_layout(self._path, layout, self._expected, self._findings)
        for base, following in pairwise(layout.segments):
            if base in layout.sealed and self._wants(base):
                self._check_sealed(base, limit=following)
        solid = layout.solid
        if solid is not None and plan is not None and plan.row is not None and self._wants(solid):
            self._check_solid(solid, plan, plan.row)
        self._judge_seams()
        for offset in layout.snapshots:
            if self._wanted(f"{self._path}/{numbered(offset, 'snapshot')}"):
                self._check_snapshot(offset, layout)
        for base in layout.aborted:
            if self._wanted(f"{self._path}/{numbered(base, 'aborted')}"):
                self._check_aborted(base)
        if LABEL in names:
            self._check_label()
        if plan is not None:
            self._check_appends(plan)
        return self._counts

    # ---- segments

    def _check_sealed(self, base: int, *, limit: int) -> None:
        path = self._segment_path(base)
        stored = read_stored_index(self._source, path, base=base, state=None, findings=self._findings)
        size = self._source.size(path)
        length = size if stored.index is None else stored.index.end
        if size > length:
            message = f"the sealed segment ends at byte {length}, and {size - length} bytes follow"
            self._findings.problem(path, message, _CUT, position=length, end=size)
        known = len(self._findings.problems)
        # A truncation that is not in the files yet may begin a segment before the one that followed so far.
        claimed = None if self._expected.truncated else limit
        track = self._check_bytes(_claim(path, base, stored, length=length, limit=claimed))
        sound = len(self._findings.problems) == known
        if stored.index is not None:
            self._judge_following(path, stored.index.following, limit)
        elif sound and track is not None and track.next_offset < limit:
            self._seams.append(Seam(path, track.next_offset, limit))

    def _judge_following(self, path: str, following: int | None, found: int) -> None:
        """A sealed segment knows where the next one begins, unless a truncation is about to begin another."""
        if following is None or following == found or self._expected.truncated:
            return
        self._findings.problem(
            path,
            f"the segment that followed it, {numbered(following, 'log')}, is missing",
            _GAP,
            first_offset=min(following, found),
            next_offset=max(following, found),
        )

    def _check_solid(self, base: int, plan: Plan, row: Row) -> None:
        """The newest segment of the checkpoint, or the one in which a later truncation ended."""
        path, length = self._segment_path(base), plan.solid[1]
        stored = read_solid_index(self._source, path, base, plan, row, self._findings)
        # Without the index nobody knows where the span begins that the checkpoint's checksum is of.
        known = plan.solid == (row.segment, row.length) and stored.index is not None
        open_crc = row.open_crc if known else None
        self._check_bytes(
            _claim(path, base, stored, length=length, limit=plan.solid_offset, open_crc=open_crc)
        )

    def _check_bytes(self, claim: SegmentClaim) -> OffsetTrack | None:
        try:
            file = self._source.open(claim.path)
        except OSError as error:
            if not claim.length:
                return None  # nothing of it counts yet: a truncation may be about to create it
            self._findings.problem(
                claim.path,
                f"the segment cannot be opened: {error.strerror}",
                RESTORE,
                first_offset=claim.base,
                next_offset=claim.limit,
            )
            return None
        with file:
            check = SegmentCheck(file, claim, findings=self._findings, progress=self._progress)
            check.run()
        track = check.track
        self._compacted = self._compacted or track.compacted
        if claim.index is None and track.first_gap is not None:
            first, following = track.first_gap
            self._findings.note(
                claim.path,
                f"no batch holds the offsets {first} to {following - 1}, nor perhaps later ones. "
                "Compaction leaves such gaps; without the index nothing proves that it did",
            )
        stem = claim.path.removesuffix("log")
        index_bytes = self._source.size(stem + "index") + self._source.size(stem + "timeindex")
        self._counts.add(Counts(1, track.batches, track.records, claim.length + index_bytes))
        return track

    def _judge_seams(self) -> None:
        """Without an index: compaction may have taken the end of a segment, or a whole segment is gone."""
        for seam in self._seams:
            message = f"no segment holds the offsets {seam.first_offset} to {seam.next_offset - 1}"
            if self._compacted:
                self._findings.note(seam.path, f"{message}, as compaction leaves it")
                continue
            self._findings.problem(
                seam.path, message, _GAP, first_offset=seam.first_offset, next_offset=seam.next_offset
            )

    def _wants(self, base: int) -> bool:
        return self._wanted(self._segment_path(base))

    def _segment_path(self, base: int) -> str:
        return f"{self._path}/{numbered(base, 'log')}"

    # ---- snapshots

    def _check_snapshot(self, offset: int, layout: Layout) -> None:
        path = f"{self._path}/{numbered(offset, 'snapshot')}"
        try:
            data = self._source.read_whole(path)
        except OSError as error:
            self._findings.problem(path, f"cannot be read: {error.strerror}", STATE_REBUILT)
            return
        state = None if data is None else read_snapshot(data)
        if data is None or state is None:
            size = len(data or b"")
            self._findings.problem(path, "its checksum does not hold", STATE_REBUILT, position=0, end=size)
            return
        self._counts.bytes += len(data)
        self._progress.add(len(data))
        for base in state.aborted_bases:
            if base in layout.present and base not in layout.aborted:
                missing = f"{self._path}/{numbered(base, 'aborted')}"
                self._findings.problem(missing, f"missing, and {path} names it", LIST_REBUILT)

    def _check_aborted(self, base: int) -> None:
        path = f"{self._path}/{numbered(base, 'aborted')}"
        try:
            data = self._source.read_whole(path) or b""
        except OSError as error:
            self._findings.problem(path, f"cannot be read: {error.strerror}", LIST_REBUILT)
            return
        if read_aborted(data, base) is None:
            self._findings.problem(
                path, "its checksum does not hold", LIST_REBUILT, position=0, end=len(data)
            )
        self._counts.bytes += len(data)
        self._progress.add(len(data))

    # ---- whose log it is

    def _check_label(self) -> None:
        path = f"{self._path}/{LABEL}"
        known = read_partition_directory(self._path)
        try:
            data = self._source.read_whole(path, bytes_max=_LABEL_BYTES_MAX) or b""
        except OSError as error:
            self._findings.problem(path, f"cannot be read: {error.strerror}", _LABEL_WRITTEN)
            return
        label = read_label(data)
        if label is None:
            self._findings.problem(
                path, "its checksum does not hold", _LABEL_WRITTEN, position=0, end=len(data)
            )
        elif known is not None and label.partition_id != known[0]:
            self._findings.problem(path, f"it is the label of {label.partition_id}", _LABEL_WRITTEN)
        self._counts.bytes += len(data)
        self._progress.add(len(data))

    # ---- what the journal says was written by reference

    def _check_appends(self, plan: Plan) -> None:
        for append in plan.surviving():
            if not append.flags & REFERENCED or self._is_there(append):
                continue
            path, offset = self._segment_path(append.segment), append.batch.base_offset
            if plan.cut_loose(append):
                self._findings.note(
                    path,
                    f"the log ends at offset {offset} after a crash, as fsync = os or interval allows",
                    position=append.position,
                )
                return
            self._findings.problem(
                path,
                "the journal says that a batch was written here, and it is not there",
                RESTORE,
                position=append.position,
                end=append.position + append.batch.size,
                first_offset=offset,
                next_offset=append.batch.next_offset,
            )

    def _is_there(self, append: Append) -> bool:
        begin, end = append.position, append.position + append.batch.size
        wanted = bytes(append.batch.data[:HEADER_BYTES])
        try:
            with self._source.open(self._segment_path(append.segment)) as file:
                for _, batch, crc_holds in walk_batches(file, begin=begin, end=end):
                    return crc_holds and bytes(batch.data) == wanted
        except (OSError, WalkBroken):
            return False
        return False


def judge_missing_directory(path: str, plan: Plan | None, findings: Findings) -> None:
    """A partition without a directory: gone, unless the journal is about to make it."""
    if plan is not None and plan.row is not None:
        findings.problem(
            path,
            "the directory of the partition is missing",
            RESTORE,
            first_offset=plan.row.start,
            next_offset=plan.row.end,
        )


def judge_layout(path: str, layout: Layout, expected: ExpectedPartition, findings: Findings) -> None:
    """What the names alone tell of a partition."""
    for name in layout.unplanned:
        findings.note(f"{path}/{name}", explain_unplanned(name))
    plan = expected.plan
    if plan is None:
        return
    if plan.damaged != NONE:
        findings.problem(path, "quarantined by an earlier start", RESTORE, first_offset=plan.damaged)
    oldest = min(layout.segments)
    if oldest > plan.shape.start:
        findings.problem(
            path,
            f"the segments before {numbered(oldest, 'log')} are missing",
            RESTORE,
            first_offset=plan.shape.start,
            next_offset=oldest,
        )
    row = plan.row
    if row is not None and row.snapshot not in (NONE, *layout.snapshots) and not expected.truncated:
        name = numbered(row.snapshot, "snapshot")
        findings.problem(f"{path}/{name}", "missing, and CHECKPOINT names it", STATE_REBUILT)


def read_solid_index(
    source: Source, segment: str, base: int, plan: Plan, row: Row, findings: Findings
) -> StoredIndex:
    """The index of the solid segment, no further than that segment is solid."""
    state = None
    if base == row.segment:
        state = IndexState(row.index_entries, row.index_crc, row.time_crc)
    position = plan.solid[1]
    # A checkpoint that a crash cut short may have begun to write the index of what a truncation left.
    lenient = plan.solid != (row.segment, row.length)
    stored = read_stored_index(source, segment, base=base, state=state, findings=findings, lenient=lenient)
    if stored.index is None:
        return stored
    kept = stored.index.cut(position, offset=plan.solid_offset)
    return StoredIndex(kept, stored.times_known, stored.state)


def _claim(
    path: str,
    base: int,
    stored: StoredIndex,
    *,
    length: int,
    limit: int | None,
    open_crc: int | None = None,
) -> SegmentClaim:
    return SegmentClaim(
        path=path,
        base=base,
        length=length,
        limit=limit,
        index=stored.index,
        times_known=stored.times_known,
        open_crc=open_crc,
    )
