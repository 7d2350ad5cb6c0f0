"""Every byte of one segment, against its index and its own checksums.

Closed spans are compared with the checksums in the index, which cover all bytes; then batch by batch with
their own CRCs, and the index entry with what the batches say. What lies behind the last closed span, or
everything where there is no index, is walked from batch to batch; the checkpoint's checksum of the open span
proves the bytes that no batch CRC covers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tailrace.records import BatchError, iter_batches
from tailrace.storage.segment.index import (
    HEADER_BYTES,
    TIME_ENTRY_BYTES,
    SpanIndex,
)
from tailrace.storage.segment.inspection.progress import Progress
from tailrace.storage.segment.inspection.report import Findings
from tailrace.storage.segment.inspection.source import SourceFile
from tailrace.storage.segment.inspection.stored_index import REBUILT
from tailrace.storage.segment.inspection.walk import (
    PIECE_BYTES,
    OffsetTrack,
    WalkBroken,
    crc_of_range,
    walk_batches,
)

RESTORE = (
    "Nothing cuts or serves these bytes. Restore a backup; or give up all records of the partition, with "
    "the broker running: tailrace topic purge TOPIC --partition N"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentClaim:
    """What a segment file should hold."""

    path: str
    base: int
    length: int  # bytes that were promised
    limit: int | None  # no batch of it reaches past this offset
    index: SpanIndex | None  # None: nothing usable
    times_known: bool
    open_crc: int | None = None  # of what lies behind the last closed span, if the checkpoint tells


@dataclass(slots=True)
class BadRange:
    """Neighbouring spans that are not what was written."""

    position: int
    end: int
    first_offset: int
    next_offset: int


class SegmentCheck:
    """One run over one segment file."""

    def __init__(
        self, file: SourceFile, claim: SegmentClaim, *, findings: Findings, progress: Progress
    ) -> None:
        self._file = file
        self._claim = claim
        self._findings = findings
        self._progress = progress
        self._bad: BadRange | None = None
        self.track = OffsetTrack(base=claim.base, limit=claim.limit)

    def run(self) -> None:
        index, length, open_crc = self._claim.index, self._claim.length, self._claim.open_crc
        size = self._file.size()
        if size < length:
            index, length, open_crc = self._judge_short(size), size, None
            if index is not None:
                length = index.closed_position
        closed = 0
        if index is not None:
            closed = index.closed_position
            self._check_spans(index)
        try:
            self._check_open(closed, length, open_crc)
        except OSError as error:
            self._report(closed, length, f"cannot be read: {error.strerror}")

    def _judge_short(self, size: int) -> SpanIndex | None:
        """Say what is missing; returns the index of the spans that are there."""
        claim = self._claim
        kept = claim.index.cut(size, offset=claim.index.closed_offset) if claim.index is not None else None
        self._findings.problem(
            claim.path,
            f"it ends at byte {size}, and {claim.length} bytes were written",
            RESTORE,
            position=size,
            end=claim.length,
            first_offset=kept.closed_offset if kept is not None else None,
            next_offset=claim.limit,
        )
        return kept

    # ---- closed spans

    def _check_spans(self, index: SpanIndex) -> None:
        first = 0
        while first < len(index):
            begin = index.positions[first]
            last = min(max(bisect_right(index.positions, begin + PIECE_BYTES) - 1, first + 1), len(index))
            size = index.positions[last] - begin
            try:
                data = self._file.read(begin, size)
            except OSError:
                data = memoryview(b"")  # a bad sector: no span of this piece can be what was written
            self._check_piece(index, first, last, data)
            self._progress.add(size)
            first = last
        self._flush_bad()

    def _check_piece(self, index: SpanIndex, first: int, last: int, data: memoryview) -> None:
        """Spans `first` to `last` - 1, which lie in `data`."""
        begin = index.positions[first]
        while first < last:
            bad = index.check(first, last, data[index.positions[first] - begin :])
            for span in range(first, last if bad is None else bad):
                start, end = index.positions[span], index.positions[span + 1]
                self._check_span(index, span, data[start - begin : end - begin])
            if bad is None:
                return
            self._note_bad(index, bad)
            first = bad + 1

    def _check_span(self, index: SpanIndex, span: int, data: memoryview) -> None:
        """The bytes are those that were indexed; now whether they make sense, and agree with the entry."""
        position, count = index.positions[span], 0
        try:
            for batch in iter_batches(data):
                wrong = self.track.take(batch) if batch.check_crc() else "its CRC does not hold"
                if wrong:
                    self._report_batch(position, position + batch.size, wrong)
                position += batch.size
                count += 1
        except BatchError as error:
            self._report_batch(position, index.positions[span + 1], str(error))
        self._compare_entry(index, span + 1, count)

    def _compare_entry(self, index: SpanIndex, entry: int, count: int) -> None:
        """Which batches are spans by themselves was the writer's choice, but such a span is one batch."""
        stem, offset = self._claim.path.removesuffix("log"), index.base + index.offsets[entry]
        past = self._claim.limit is not None and offset > self._claim.limit
        if offset < self.track.next_offset or past or (index.singles[entry] and count != 1):
            self._report_entry(stem + "index", entry, index.entry_bytes)
        if self._claim.times_known and index.times[entry] != self.track.max_timestamp:
            self._report_entry(stem + "timeindex", entry, TIME_ENTRY_BYTES)
        self.track.close_at(offset)

    def _note_bad(self, index: SpanIndex, span: int) -> None:
        bad = BadRange(
            index.positions[span],
            index.positions[span + 1],
            index.base + index.offsets[span],
            index.base + index.offsets[span + 1],
        )
        self.track.skip_to(bad.next_offset, max_timestamp=index.times[span + 1])
        if self._bad is not None and self._bad.end == bad.position:
            self._bad.end, self._bad.next_offset = bad.end, bad.next_offset
            return
        self._flush_bad()
        self._bad = bad

    def _flush_bad(self) -> None:
        bad, self._bad = self._bad, None
        if bad is not None:
            self._findings.problem(
                self._claim.path,
                "these bytes are not what was written",
                RESTORE,
                position=bad.position,
                end=bad.end,
                first_offset=bad.first_offset,
                next_offset=bad.next_offset,
            )

    # ---- what no index covers

    def _check_open(self, begin: int, end: int, open_crc: int | None) -> None:
        known = len(self._findings.problems)
        try:
            for position, batch, crc_holds in walk_batches(self._file, begin=begin, end=end):
                wrong = self.track.take(batch) if crc_holds else "its CRC does not hold"
                if wrong:
                    self._report_batch(position, position + batch.size, wrong)
                self._progress.add(batch.size)
        except WalkBroken as error:
            self._report(error.position, end, f"no whole batch begins here: {error}")
        if open_crc is None or len(self._findings.problems) > known:
            return
        if crc_of_range(self._file, begin=begin, end=end) != open_crc:
            self._report(begin, end, "the last bytes are not what the checkpoint saw")

    # ---- saying so

    def _report(self, position: int, end: int, message: str) -> None:
        claim = self._claim
        self._findings.problem(
            claim.path,
            message,
            RESTORE,
            position=position,
            end=end,
            first_offset=self.track.next_offset,
            next_offset=claim.limit,
        )

    def _report_batch(self, position: int, end: int, wrong: str) -> None:
        self._report(position, end, f"the batch cannot be what was written: {wrong}")

    def _report_entry(self, path: str, entry: int, entry_bytes: int) -> None:
        position = HEADER_BYTES + (entry - 1) * entry_bytes
        message = "the entry does not agree with the segment"
        self._findings.problem(path, message, REBUILT, position=position, end=position + entry_bytes)
