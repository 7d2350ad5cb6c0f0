"""The two index files of a segment: whether each is whole, and if not, which of them is wrong.

The engine asks only whether both are right, and makes the index again where they are not. Here the places in
`.index` are used even if `.timeindex` is wrong, because their checksums are the only proof of the first 21
bytes of every batch.

Missing files of a sealed segment are a note: compaction removes them before it replaces the segment, and a
crash may come between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace.records import crc32c
from tailrace.storage.segment.index import (
    FOOTER_BYTES,
    HEADER_BYTES,
    TIME_ENTRY_BYTES,
    IndexState,
    SpanIndex,
    index_entry_bytes,
    is_of_encrypted,
    read_following,
    read_index,
    write_footers,
    write_headers,
)
from tailrace.storage.segment.inspection.report import Findings
from tailrace.storage.segment.inspection.source import Source

_INTERVAL_BYTES = 1  # of no consequence: nothing is added to an index that was read
REBUILT = (
    "No record is lost: the index is made again from the segment. Remove both index files of the segment"
)


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index as its files tell it; `index` is None where the segment must be walked without one."""

    index: SpanIndex | None
    times_known: bool
    state: Literal["sealed", "open", "missing", "wrong", "none"]


@dataclass(frozen=True, slots=True)
class _File:
    """One of the two files: its path, its bytes (None: missing), and which of a pair it is."""

    path: str
    data: bytes | None
    which: Literal[0, 1]
    entry_bytes: int
    encrypted: bool = False  # of a segment that is stored encrypted

    def header(self, base: int) -> bytes:
        return write_headers(base, encrypted=self.encrypted)[self.which]

    def is_sealed(self, base: int) -> bool:
        """Whether it is exactly a header, entries, and the footer that belongs to them."""
        if self.data is None:
            return False
        count, rest = divmod(len(self.data) - HEADER_BYTES - FOOTER_BYTES, self.entry_bytes)
        if count < 0 or rest:
            return False
        entries = self.entries(count)
        crc = crc32c(entries)
        following = read_following(self.data)
        if following is None:
            return False
        footer = write_footers(IndexState(count, crc, crc), following)[self.which]
        return self.data == self.header(base) + entries + footer

    def begins_with(self, base: int, state: IndexState) -> bool:
        """Whether it begins with a header and the entries that the checkpoint saw."""
        if self.data is None or len(self.data) < HEADER_BYTES + state.entries * self.entry_bytes:
            return False
        crc = (state.index_crc, state.time_crc)[self.which]
        return self.data[:HEADER_BYTES] == self.header(base) and crc32c(self.entries(state.entries)) == crc

    def entries(self, count: int) -> bytes:
        assert self.data is not None
        return self.data[HEADER_BYTES : HEADER_BYTES + count * self.entry_bytes]


def read_stored_index(
    source: Source,
    segment: str,
    *,
    base: int,
    state: IndexState | None,
    findings: Findings,
    lenient: bool = False,
) -> StoredIndex:
    """The index of a sealed segment, or up to `state` of one that was not sealed.

    `lenient` says that a crash may have left the files half-written, so that being wrong is no problem.
    """
    collected = Findings()
    files = _read_files(source, segment, state, collected)
    if state is None:
        found = _read_sealed(files, base, collected)
    else:
        found = _read_open(files, base, state, collected)
    if lenient:
        for problem in collected.problems:
            findings.note(
                problem.path, "does not fit after a crash; the index is made again from the segment"
            )
        collected.problems.clear()
    findings.add(collected)
    return found


def _read_files(
    source: Source, segment: str, state: IndexState | None, findings: Findings
) -> tuple[_File, _File]:
    stem = segment.removesuffix("log")

    def read(suffix: str, entry_bytes: int) -> bytes | None:
        try:
            if state is None:
                return source.read_whole(stem + suffix)
            # What follows the entries that the checkpoint saw is not judged, so it is not read either.
            return source.read_start(stem + suffix, HEADER_BYTES + state.entries * entry_bytes)
        except OSError as error:
            findings.problem(stem + suffix, f"cannot be read: {error.strerror}", REBUILT)
            return b""

    encrypted = _is_encrypted(source, stem + "index")
    size = index_entry_bytes(encrypted=encrypted)
    return (
        _File(stem + "index", read("index", size), 0, size, encrypted),
        _File(stem + "timeindex", read("timeindex", TIME_ENTRY_BYTES), 1, TIME_ENTRY_BYTES),
    )


def _is_encrypted(source: Source, path: str) -> bool:
    try:
        return is_of_encrypted(source.read_start(path, HEADER_BYTES) or b"")
    except OSError:
        return False  # reading it whole says so


def _read_sealed(files: tuple[_File, _File], base: int, findings: Findings) -> StoredIndex:
    places, times = files
    for file in files:
        if file.data is None:
            findings.note(
                file.path, "missing, as a crash during compaction leaves it; made again when needed"
            )
        elif not file.is_sealed(base):
            _report_wrong(file, "its checksum does not hold", findings)
    if places.data is None or not places.is_sealed(base):
        return StoredIndex(None, False, "missing" if places.data is None else "wrong")
    count = (len(places.data) - HEADER_BYTES - FOOTER_BYTES) // places.entry_bytes
    state = IndexState(count, crc32c(places.entries(count)), 0)
    following, whole = read_following(places.data), times.is_sealed(base)
    if times.data is not None and whole:
        expected_bytes = HEADER_BYTES + count * TIME_ENTRY_BYTES + FOOTER_BYTES
        if len(times.data) != expected_bytes or read_following(times.data) != following:
            _report_wrong(times, "it is not the one that belongs to the index", findings)
            whole = False
    index = _read(places, times if whole else None, base, state)
    if index is not None:
        index.following = following
    return StoredIndex(index, whole, "sealed" if whole else "missing" if times.data is None else "wrong")


def _read_open(files: tuple[_File, _File], base: int, state: IndexState, findings: Findings) -> StoredIndex:
    if not state.entries:
        for file in files:
            # It may not be written yet; once it is, it begins with its header.
            if file.data and any(file.data) and not file.begins_with(base, state):
                _report_wrong(file, "its header is not that of this segment", findings)
        return StoredIndex(SpanIndex(base, _INTERVAL_BYTES), True, "none")
    places, times = files
    for file in files:
        if file.data is None:
            findings.problem(file.path, "missing, and the checkpoint knows entries of it", REBUILT)
        elif not file.begins_with(base, state):
            _report_wrong(
                file, f"its first {state.entries} entries are not what the checkpoint saw", findings
            )
    if not places.begins_with(base, state):
        return StoredIndex(None, False, "missing" if places.data is None else "wrong")
    whole = times.begins_with(base, state)
    index = _read(places, times if whole else None, base, state)
    return StoredIndex(index, whole, "open" if whole else "wrong")


def _read(places: _File, times: _File | None, base: int, state: IndexState) -> SpanIndex | None:
    """The index out of `.index`, and of `.timeindex` if that is usable; else its times are all zero."""
    assert places.data is not None
    moments = times.entries(state.entries) if times else bytes(state.entries * TIME_ENTRY_BYTES)
    state = IndexState(state.entries, state.index_crc, crc32c(moments))
    return read_index(
        places.data,
        write_headers(base)[1] + moments,
        base=base,
        interval_bytes=_INTERVAL_BYTES,
        state=state,
    )


def _report_wrong(file: _File, message: str, findings: Findings) -> None:
    findings.problem(file.path, message, REBUILT, position=0, end=len(file.data or b""))
