"""The long lists: every batch of a segment, every round of a journal file, one at a time.

Both stop where the file stops making sense; what that means is said by whoever looks at the whole directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from tailrace.model import StorageError
from tailrace.records import COMPRESSION_MASK, Batch, Compression
from tailrace.storage.segment.entry import LOOSE, REFERENCED, Append, Entry, Trim, Truncate
from tailrace.storage.segment.inspection.journal_files import KINDS
from tailrace.storage.segment.inspection.report import BatchReport, EntryReport, RoundReport
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.inspection.walk import WalkBroken, walk_batches
from tailrace.storage.segment.journal import Round, read_header, read_rounds
from tailrace.storage.segment.plan import entries_of

_CODECS = {int(codec): codec.name.lower() for codec in Compression}


def list_batches(root: str | os.PathLike[str], segment: str) -> Iterator[BatchReport]:
    """Every batch of a segment, named by its path within the data directory, with its CRC checked."""
    with Source(root).open(segment) as file:
        try:
            for position, batch, crc_holds in walk_batches(file, begin=0, end=file.size()):
                yield _describe_batch(segment, position, batch, crc_holds)
        except WalkBroken:
            return


def list_rounds(
    root: str | os.PathLike[str], journal_file: str, *, checkpoint_lsn: int
) -> Iterator[RoundReport]:
    """Every whole round of a journal file, named by its path within the data directory."""
    data = memoryview(Source(root).read_whole(journal_file) or b"")
    header = read_header(data)
    if header is None:
        return
    for each in read_rounds(data, header):
        yield RoundReport(
            path=journal_file,
            position=each.position,
            lsn=each.lsn,
            synced_lsn=each.synced_lsn,
            above_checkpoint=each.lsn > checkpoint_lsn,
            entries=tuple(map(_describe_entry, _entries(each))),
        )


def _entries(each: Round) -> list[Entry]:
    try:
        return entries_of(each)
    except StorageError:
        return []


def _describe_entry(entry: Entry) -> EntryReport:
    kind = KINDS[entry.kind]
    if isinstance(entry, Append):
        how = "referenced" if entry.flags & REFERENCED else "inline"
        return EntryReport(
            kind=kind,
            life=entry.life,
            how=f"{how}, loose" if entry.flags & LOOSE else how,
            segment=entry.segment,
            position=entry.position,
            first_offset=entry.batch.base_offset,
            next_offset=entry.batch.next_offset,
            bytes=entry.batch.size,
        )
    if isinstance(entry, Truncate):
        return EntryReport(
            kind=kind,
            life=entry.life,
            segment=entry.segment,
            position=entry.position,
            next_offset=entry.offset,
        )
    if isinstance(entry, Trim):
        segment = entry.segment if entry.segment >= 0 else None
        return EntryReport(kind=kind, life=entry.life, segment=segment, first_offset=entry.offset)
    return EntryReport(kind=kind, life=entry.life)


def _describe_batch(path: str, position: int, batch: Batch, crc_holds: bool) -> BatchReport:
    codec = batch.attributes & COMPRESSION_MASK
    flags = (
        ("append time", batch.is_log_append_time),
        ("transactional", batch.is_transactional),
        ("control", batch.is_control),
        ("delete horizon", batch.has_delete_horizon),
    )
    return BatchReport(
        path=path,
        position=position,
        bytes=batch.size,
        first_offset=batch.base_offset,
        next_offset=batch.next_offset,
        records=batch.count,
        leader_epoch=batch.leader_epoch,
        codec=_CODECS.get(codec, f"codec {codec}"),
        base_timestamp_ms=batch.base_timestamp,
        max_timestamp_ms=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        flags=tuple(name for name, is_set in flags if is_set),
        crc_ok=crc_holds,
    )
