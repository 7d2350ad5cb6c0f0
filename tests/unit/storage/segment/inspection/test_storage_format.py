"""The files as docs/storage-format.md tells them, read with struct and a CRC alone."""

from __future__ import annotations

import struct
from pathlib import Path

from tailrace.records import crc32c
from tailrace.storage.segment.inspection import inspect_directory

DOCUMENT = Path(__file__).parents[5] / "docs" / "storage-format.md"
FIRST = "6f1c23456789abcdef0123456789abcd-0-1"
MAGICS = {b"TRJOURN1", b"TRCHECK1", b"TRINDEX1", b"TRTIMES1", b"TRSTATE1"}


def test_every_file_begins_with_a_magic_that_the_document_tells(clean: Path) -> None:
    files = [clean / "CHECKPOINT", *clean.glob("journal/*"), *clean.glob("*-*-*/*")]
    found = {file.read_bytes()[:8] for file in files if file.suffix != ".log"}
    assert found == MAGICS
    text = DOCUMENT.read_text()
    assert all(magic.decode() in text for magic in found)


def test_the_checkpoint(clean: Path) -> None:
    data = (clean / "CHECKPOINT").read_bytes()
    length, crc = struct.unpack_from("<II", data, 8)
    assert length == len(data) - 16
    assert crc == crc32c(data[16:], crc32c(data[:12]))
    lsn, next_life, journal_files, partitions = struct.unpack_from("<QQII", data, 16)
    assert (next_life, journal_files, partitions) == (3, 1, 2)
    assert lsn == inspect_directory(clean).journal[0].last_lsn
    rows = data[40 + 4 * journal_files :]
    assert len(rows) == 88 * partitions
    life, topic_id, partition, start, end, segment = struct.unpack_from("<Q16sIqqq", rows)
    assert f"{topic_id.hex()}-{partition}-{life}" == FIRST
    assert (start, end, segment) == (100, 276, 260)


def test_the_open_span_and_the_index_of_the_newest_segment(clean: Path) -> None:
    row = (clean / "CHECKPOINT").read_bytes()[44:]
    length, entries, index_crc, time_crc, open_crc = struct.unpack_from("<IIIII", row, 52)
    index = (clean / FIRST / f"{260:020d}.index").read_bytes()
    times = (clean / FIRST / f"{260:020d}.timeindex").read_bytes()
    segment = (clean / FIRST / f"{260:020d}.log").read_bytes()
    assert entries > 0
    assert crc32c(index[16 : 16 + 12 * entries]) == index_crc
    assert crc32c(times[16 : 16 + 8 * entries]) == time_crc
    _, position, _ = struct.unpack_from("<III", index, 16 + 12 * (entries - 1))
    assert crc32c(segment[position & 0x7FFFFFFF : length]) == open_crc


def test_the_journal(clean: Path) -> None:
    data = (clean / "journal" / "0001.journal").read_bytes()
    journal_id, first_lsn, size, crc = struct.unpack_from("<QQQI", data, 8)
    assert (journal_id % 2, first_lsn, size) == (1, 1, len(data))
    assert crc == crc32c(data[:32])
    assert data[36:512] == bytes(476)
    position, kinds = 512, []
    for lsn in range(1, 1 + inspect_directory(clean).journal[0].rounds):
        found_id, length, crc = struct.unpack_from("<QII", data, position)
        assert found_id == journal_id
        body = data[position + 16 : position + 16 + length]
        assert crc == crc32c(body, crc32c(data[position : position + 12]))
        found_lsn, synced_lsn, count, flags = struct.unpack_from("<QQII", body)
        assert (found_lsn, synced_lsn, flags) == (lsn, lsn - 1, 1)
        place = 24
        for _ in range(count):
            kind, _, _, size = struct.unpack_from("<BBHI", body, place)
            kinds.append(kind)
            place += 28 + size
        assert place == length
        position = -(-(position + 16 + length) // 512) * 512
    assert (kinds.count(1), kinds.count(2), kinds.count(4)) == (139, 2, 1)


def test_the_index_of_a_sealed_segment(clean: Path) -> None:
    segment = (clean / FIRST / f"{242:020d}.log").read_bytes()
    small = (clean / FIRST / f"{0:020d}.log").read_bytes()
    large = (clean / FIRST / f"{240:020d}.log").read_bytes()
    kinds = set()
    for base, data in ((242, segment), (0, small), (240, large)):
        index = (clean / FIRST / f"{base:020d}.index").read_bytes()
        assert struct.unpack_from("<q", index, 8) == (base,)
        seal, count, _, crc = struct.unpack_from("<8sIqI", index, len(index) - 24)
        entries = index[16:-24]
        assert (seal, len(entries)) == (b"TRSEALED", 12 * count)
        assert crc32c(entries + index[-12:-4]) == crc
        begin = 0
        for _, flagged, checksum in struct.iter_unpack("<III", entries):
            single, end = flagged >> 31, flagged & 0x7FFFFFFF
            kinds.add(single)
            assert crc32c(data[begin : begin + 21] if single else data[begin:end]) == checksum
            begin = end
        assert begin == len(data)
    assert kinds == {0, 1}


def test_a_snapshot(clean: Path) -> None:
    data = (clean / FIRST / f"{276:020d}.snapshot").read_bytes()
    length, crc = struct.unpack_from("<II", data, 8)
    assert crc == crc32c(data[16:], crc32c(data[:12]))
    (epochs,) = struct.unpack_from(">I", data, 16)
    assert length == 4 + 12 * epochs
    place = 16 + length
    (producers,) = struct.unpack_from(">I", data, place)
    place += 4
    ids = []
    for _ in range(producers):
        producer_id, _, _, _, _, batches = struct.unpack_from(">qhiqqB", data, place)
        ids.append(producer_id)
        place += 31 + 24 * batches
    assert (ids, place) == ([7, 8], len(data))
