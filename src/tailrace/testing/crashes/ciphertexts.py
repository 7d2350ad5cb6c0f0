"""What a thief of an encrypted directory could use: plain values, and two batches under one key and nonce.

Looked for after every life, in all files, in what a crash left behind too. A history remembers every pair
that it saw: the same bytes may be under it again (journal and segment hold the same), other bytes never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

from tailrace.records import BatchError, iter_batches
from tailrace.storage.encryption.keys_file import KEYS, read_keys
from tailrace.storage.encryption.layout import is_encrypted
from tailrace.storage.encryption.stored_batch import read_place
from tailrace.storage.segment.entry import Append, EntryError, read_entries
from tailrace.storage.segment.journal import Round, read_header, read_rounds
from tailrace.storage.segment.names import JOURNAL_DIRECTORY
from tailrace.testing.crashes.oracle import Wrong
from tailrace.testing.simulation import SimulatedDisk


class Ciphertexts:
    """Every (key, nonce) pair of one history."""

    def __init__(self, plain: bytes) -> None:
        """`plain` is a pattern that every value matches."""
        self._plain = re.compile(plain)
        self._seen: dict[tuple[bytes, int, int], bytes] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, disk: SimulatedDisk) -> None:
        """Look at every file; Wrong if one tells something."""
        paths = [path for path in disk.paths() if not path.endswith("/")]
        directory_id = self._directory_id(disk, paths)
        for path in paths:
            content = disk.content(path)
            if (found := self._plain.search(content)) is not None:
                raise Wrong(f"{path} holds {found.group()!r} at byte {found.start()}")
            for data in _stored(path, content):
                self._note(directory_id, path, data)

    def _directory_id(self, disk: SimulatedDisk, paths: list[str]) -> bytes:
        found = read_keys(disk.content(KEYS)) if KEYS in paths else None
        return found.header.directory_id if found is not None else b""

    def _note(self, directory_id: bytes, path: str, data: memoryview) -> None:
        try:
            for batch in iter_batches(data):
                if not is_encrypted(batch) or not batch.check_crc():
                    continue
                pair = directory_id, *read_place(batch)
                digest = blake2b(batch.data[21:], digest_size=16).digest()
                if self._seen.setdefault(pair, digest) != digest:
                    raise Wrong(f"{path} has two batches under key {pair[1]} and nonce {pair[2]}")
        except BatchError:
            return  # torn


def _stored(path: str, content: bytes) -> Iterator[memoryview]:
    data = memoryview(content)
    if path.endswith((".log", ".log.tmp")):
        yield data
    elif path.startswith(JOURNAL_DIRECTORY) and (header := read_header(data)) is not None:
        for each in read_rounds(data, header):
            yield from _inline(each)


def _inline(each: Round) -> Iterator[memoryview]:
    try:
        for entry in read_entries(each.entries, each.count):
            if isinstance(entry, Append) and len(entry.stored.data) == entry.stored.size:
                yield entry.stored.data
    except (EntryError, BatchError):
        return
