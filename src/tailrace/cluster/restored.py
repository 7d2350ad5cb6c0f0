"""Metadata that came out of a backup, made to outrun the broker that it was backed up from.

That broker went on: every start of it raised the leader epochs, and it handed out producer ids. Clients that
knew it ignore a leader with an older epoch, and a producer id must not be given to a second producer. So
both go up by more than that broker can have used since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tailrace.cluster import record
from tailrace.cluster.copying import write_copy
from tailrace.cluster.database import SIDECARS
from tailrace.cluster.image_file import IMAGE, PREVIOUS
from tailrace.cluster.reading import read_metadata_file
from tailrace.cluster.replacement import READY
from tailrace.cluster.store import METADATA, Entry, Rows
from tailrace.model import Epoch, StorageError

_IDS_PER_S = 1_000_000
_ELAPSED_S_MAX = 20 * 365 * 24 * 3600  # of 2**31 epochs; a clock that is further off is wrong


def outrun(directory: Path, *, elapsed_s: int) -> None:
    """Write the metadata of a restored directory anew, for a broker that may have run for `elapsed_s` since.

    StorageError if it is damaged; then nothing has changed. Not atomic: the caller keeps brokers away.
    """
    rows = read_metadata_file(directory / METADATA).rows
    if not rows.entries:
        return
    try:
        raised = plan_outrun(rows, elapsed_s=elapsed_s)
    except ValueError as error:
        raise StorageError("read metadata in", str(directory), str(error)) from error
    for name in (METADATA, *(METADATA + suffix for suffix in (*SIDECARS, READY)), IMAGE, PREVIOUS):
        (directory / name).unlink(missing_ok=True)
    write_copy(directory, raised)


def plan_outrun(rows: Rows, *, elapsed_s: int) -> Rows:
    """The rows with greater epochs and producer ids, at a later revision; ValueError for nonsense."""
    seconds = min(max(elapsed_s, 0), _ELAPSED_S_MAX) + 1
    puts: dict[str, str] = {}
    for topic in record.read_image(rows.entries).topics:
        for each in topic.partitions:
            key = record.partition_key(topic.id, each.index)
            puts[key] = record.write_partition(replace(each, leader_epoch=Epoch(each.leader_epoch + seconds)))
    following = record.read_producer_ids(rows.entries) + seconds * _IDS_PER_S
    puts[record.PRODUCER_IDS] = record.write_producer_ids(following)
    revision = rows.revision + seconds
    entries: Mapping[str, Entry] = {
        **rows.entries,
        **{key: Entry(value, revision) for key, value in puts.items()},
    }
    return Rows(revision=revision, entries=dict(sorted(entries.items())))
