"""Records that pretend to be rounds of the journal, as a client could send that knows an earlier journal id.

Behind the first place that is not a whole round a journal file is searched for its id, so a record that holds
a round under that id would be believed. What protects the journal is that every use of a file has an id of
its own, drawn at random: one that anybody can know is not in use any more.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.storage.segment.entry import ENTRY_BYTES
from tailrace.storage.segment.journal import (
    ROUND_HEADER_BYTES,
    SECTOR,
    read_header,
    write_round,
)
from tailrace.storage.segment.names import JOURNAL_DIRECTORY
from tailrace.testing.simulation import SimulatedDisk

_LSN = 1 << 40  # of a time that no history reaches
_VALUE_BYTES = SECTOR + ROUND_HEADER_BYTES


def journal_ids(disk: SimulatedDisk) -> list[int]:
    """The ids under which the files of the journal were last used."""
    paths = [path for path in disk.paths() if path.startswith(JOURNAL_DIRECTORY) and not path.endswith("/")]
    headers = [read_header(memoryview(disk.content(path))) for path in paths]
    return [header.journal_id for header in headers if header is not None]


def forge_value(journal_id: int, build: Callable[[bytes], bytearray]) -> bytes:
    """A value whose batch, made of it by `build`, shows a round where the second sector of its own begins.

    So it does if the batch is the first of its round, and inline.
    """
    forged = write_round(journal_id, lsn=_LSN, synced_lsn=_LSN, count=0, parts=[])[:ROUND_HEADER_BYTES]
    plain = bytes(_VALUE_BYTES)
    before = ROUND_HEADER_BYTES + ENTRY_BYTES + build(plain).index(plain)
    return forged.rjust(-before % SECTOR + ROUND_HEADER_BYTES, b"\0").ljust(_VALUE_BYTES, b"\0")
