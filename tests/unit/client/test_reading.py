"""Records out of fetched bytes: positions, cut-off batches, compaction's gaps, transactions, damage."""

from __future__ import annotations

import struct

import pytest

from tailrace.client.reading import RecordReader
from tailrace.client.transfer import Fetched
from tailrace.model import TailraceError
from tailrace.records import (
    BatchError,
    Compression,
    NewRecord,
    build_batch,
    crc32c,
    read_batch,
    rebuild_batch,
)

PRODUCER = 5


def batch(base: int, count: int, *, transactional: bool = False, producer_id: int = -1) -> bytes:
    records: list[NewRecord] = [(0, None, b"%d" % (base + index), ()) for index in range(count)]
    idempotent = producer_id >= 0
    return bytes(
        build_batch(
            records,
            base_offset=base,
            transactional=transactional,
            producer_id=producer_id,
            producer_epoch=0 if idempotent else -1,
            base_sequence=0 if idempotent else -1,
        )
    )


def marker(offset: int, *, commit: bool) -> bytes:
    key = struct.pack(">hh", 0, int(commit))
    return bytes(
        build_batch(
            [(0, key, b"\0\0\0\0\0\0", ())],
            base_offset=offset,
            transactional=True,
            control=True,
            producer_id=PRODUCER,
            producer_epoch=0,
        )
    )


def reader(
    data: bytes, position: int = 0, *, aborted: list[tuple[int, int]] | None = None, committed: bool = False
) -> RecordReader:
    return RecordReader(
        Fetched(0, 100, 100, 0, aborted or [], memoryview(data)), position, read_committed=committed
    )


def values(read: RecordReader, count_max: int = 100) -> list[int]:
    return [int(record.value or b"") for record in read.take(count_max)]


def test_records_come_in_order_and_the_position_follows() -> None:
    read = reader(batch(0, 2) + batch(2, 3))
    assert values(read) == [0, 1, 2, 3, 4]
    assert read.position == 5


def test_records_before_the_position_are_passed_over() -> None:
    read = reader(batch(0, 5) + batch(5, 5), position=7)
    assert values(read) == [7, 8, 9]


def test_no_more_is_taken_than_asked_for_and_the_rest_later() -> None:
    read = reader(batch(0, 5) + batch(5, 5))
    assert values(read, 3) == [0, 1, 2]
    assert read.position == 3
    assert values(read, 4) == [3, 4, 5, 6]
    assert values(read, 4) == [7, 8, 9]
    assert values(read, 4) == []


@pytest.mark.parametrize("codec", Compression)
def test_every_codec_is_read(codec: Compression) -> None:
    data = bytes(build_batch([(0, b"k", b"7", (("h", b"x"),))], compression=codec))
    assert values(reader(data)) == [7]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    second = batch(2, 3)
    for cut in range(len(second)):
        read = reader(batch(0, 2) + second[:cut])
        assert values(read) == [0, 1]
        assert values(read) == []
        assert read.position == 2


def test_a_first_batch_that_is_cut_off_is_an_error_and_not_an_endless_loop() -> None:
    with pytest.raises(BatchError, match="cut off"):
        values(reader(batch(0, 2)[:-1]))


def test_a_wrong_crc_is_found() -> None:
    data = bytearray(batch(0, 2) + batch(2, 1))
    data[-1] ^= 1
    read = reader(bytes(data), 2)
    with pytest.raises(BatchError, match="batch at offset 2: its CRC"):
        values(read)


def test_what_lies_before_damage_is_read_and_the_position_stays_at_it() -> None:
    data = bytearray(batch(0, 2) + batch(2, 1))
    data[-1] ^= 1
    read = reader(bytes(data) + batch(3, 1))
    assert values(read) == [0, 1]
    for _ in range(2):
        with pytest.raises(BatchError, match="batch at offset 2: its CRC"):
            values(read)
        assert read.position == 2


def test_what_lies_before_damage_within_a_batch_is_read() -> None:
    data = bytearray(batch(0, 3))
    data[-1] = 7  # headers that the last record does not have
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    read = reader(bytes(data) + batch(3, 1))
    assert values(read) == [0, 1]
    with pytest.raises(BatchError):
        values(read)
    assert read.position == 2


def test_a_reply_shorter_than_a_length_is_an_error_and_not_an_endless_loop() -> None:
    with pytest.raises(BatchError, match="offset 40"):
        values(reader(batch(40, 1)[:11], 40))


def test_the_position_passes_what_is_hidden_before_damage() -> None:
    damaged = bytearray(batch(2, 1))
    damaged[-1] ^= 1
    read = reader(batch(0, 1) + marker(1, commit=True) + bytes(damaged))
    assert values(read) == [0]
    assert read.position == 2


def test_a_length_that_is_negative_is_an_error() -> None:
    data = bytearray(batch(0, 1) + batch(1, 1))
    struct.pack_into(">i", data, len(data) // 2 + 8, -5)
    read = reader(bytes(data))
    assert values(read) == [0]
    with pytest.raises(TailraceError, match="batch length -5"):
        values(read)


def test_offsets_that_compaction_emptied_are_passed() -> None:
    original = read_batch(batch(0, 10))
    kept = [record for record in original.records() if record.offset in (1, 4)]
    read = reader(bytes(rebuild_batch(original, kept, delete_horizon_ms=None)))
    assert values(read) == [1, 4]
    assert read.position == 10
    emptied = reader(bytes(rebuild_batch(original, [], delete_horizon_ms=None)))
    assert values(emptied) == []
    assert emptied.position == 10


def test_markers_are_never_shown_and_are_passed() -> None:
    read = reader(batch(0, 1, transactional=True, producer_id=PRODUCER) + marker(1, commit=True))
    assert values(read) == [0]
    assert read.position == 2


def test_aborted_records_are_hidden_from_read_committed_alone() -> None:
    data = (
        batch(0, 2, transactional=True, producer_id=PRODUCER)
        + batch(2, 1)
        + marker(3, commit=False)
        + batch(4, 1, transactional=True, producer_id=PRODUCER)
        + marker(5, commit=True)
    )
    assert values(reader(data, aborted=[(PRODUCER, 0)], committed=True)) == [2, 4]
    assert values(reader(data, aborted=[(PRODUCER, 0)])) == [0, 1, 2, 4]


def test_two_aborted_transactions_of_one_producer_are_both_hidden() -> None:
    data = b"".join(
        batch(base, 1, transactional=True, producer_id=PRODUCER) + marker(base + 1, commit=base == 2)
        for base in (0, 2, 4)
    )
    read = reader(data, aborted=[(PRODUCER, 4), (PRODUCER, 0)], committed=True)
    assert values(read) == [2]
    assert read.position == 6
