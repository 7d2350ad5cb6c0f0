"""The view over a batch: header fields of golden bytes, patching in place, walking a buffer of batches."""

from __future__ import annotations

import pytest

from tailrace.model import BrokerError, Epoch, ErrorCode, Offset
from tailrace.records import (
    Batch,
    BatchError,
    Compression,
    Record,
    build_batch,
    crc32c,
    iter_batches,
    max_timestamp_at,
    read_batch,
    validate_batch,
)

# Written by kafka-python: two records of an idempotent, transactional producer.
GOLDEN = bytes.fromhex(
    "0000000000000000 00000048 00000000 02 899ad242 0010 00000001 0000000000001388 0000000000001388"
    "0000000000001092 0007 7fffffff 00000002"
    "18000000026b0476310202680112000102010002000278"
)
RECORDS = [
    Record(0, 5000, b"k", b"v1", (("h", None),)),
    Record(1, 4999, None, b"", (("", b"x"),)),
]


def batch_of(count: int = 3, **fields: int) -> Batch:
    return read_batch(build_batch([(1000 + i, b"k", b"v%d" % i, ()) for i in range(count)], **fields))  # type: ignore[arg-type]


def test_crc32c_is_castagnoli_and_chains() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue
    assert crc32c(memoryview(b"_123456789_")[1:-1]) == 0xE3069283
    assert crc32c(b"56789", crc32c(bytearray(b"1234"))) == 0xE3069283


def test_reads_every_field_of_a_golden_batch() -> None:
    batch = read_batch(GOLDEN)
    assert (batch.base_offset, batch.batch_length, batch.size, batch.leader_epoch) == (0, 72, 84, 0)
    assert (batch.magic, batch.crc, batch.attributes) == (2, 0x899AD242, 0x10)
    assert (batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp) == (1, 5000, 5000)
    assert max_timestamp_at(GOLDEN) == max_timestamp_at(b"xyz" + GOLDEN, 3) == 5000
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4242, 7, 2**31 - 1)
    assert (batch.count, batch.last_offset, batch.next_offset) == (2, 1, 2)
    assert batch.is_transactional
    assert not any((batch.is_control, batch.is_log_append_time, batch.has_delete_horizon))
    assert batch.delete_horizon_ms is None
    assert batch.compression is Compression.NONE
    assert batch.check_crc()
    assert list(batch.records()) == RECORDS


def test_builds_the_golden_batch_byte_for_byte() -> None:
    built = build_batch(
        [(5000, b"k", b"v1", [("h", None)]), (4999, None, b"", [("", b"x")])],
        leader_epoch=0,
        producer_id=4242,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        transactional=True,
    )
    assert built == GOLDEN


@pytest.mark.parametrize(
    ("base", "last_delta", "last"),
    [(0, 4, 4), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_the_last_sequence_wraps(base: int, last_delta: int, last: int) -> None:
    assert batch_of(last_delta + 1, producer_id=1, producer_epoch=0, base_sequence=base).last_sequence == last


def test_a_batch_is_a_view_and_not_a_copy() -> None:
    buffer = bytearray(b"before") + GOLDEN + b"after"
    batch = read_batch(buffer, 6)
    assert batch.data.obj is buffer
    assert batch.data == GOLDEN
    buffer[6 + 83] ^= 1
    assert not batch.check_crc()


def test_assign_patches_in_place_and_leaves_the_crc_valid() -> None:
    buffer = bytearray(GOLDEN)
    batch = validate_batch(buffer, bytes_max=1000)
    batch.assign(Offset(2**40 + 5), Epoch(9))
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (2**40 + 5, 9, 2**40 + 6)
    again = validate_batch(buffer, bytes_max=1000)
    assert (again.base_offset, again.leader_epoch, again.batch_length) == (2**40 + 5, 9, 72)
    assert buffer[16:] == GOLDEN[16:]
    assert [record.offset for record in again.records()] == [2**40 + 5, 2**40 + 6]


def test_assign_copies_a_read_only_buffer_first() -> None:
    batch = read_batch(GOLDEN)
    batch.assign(Offset(5), Epoch(6))
    assert batch.data[:8] == (5).to_bytes(8, "big")
    assert GOLDEN[:8] == bytes(8)
    assert read_batch(batch.data).leader_epoch == 6


def test_append_time_is_every_records_time_and_renews_the_crc() -> None:
    for buffer in (bytearray(GOLDEN), GOLDEN):
        batch = read_batch(buffer)
        batch.stamp_append_time(123_456)
        assert batch.check_crc()
        again = validate_batch(batch.data, bytes_max=1000)
        assert again.crc == batch.crc != 0x899AD242
        assert again.is_log_append_time
        assert again.is_transactional
        assert (again.base_timestamp, again.max_timestamp) == (5000, 123_456)
        assert [record.timestamp for record in again.records()] == [123_456, 123_456]


def test_any_flipped_bit_after_the_crc_is_noticed() -> None:
    for bit in range(21 * 8, 84 * 8):
        data = bytearray(GOLDEN)
        data[bit // 8] ^= 1 << bit % 8
        assert not read_batch(data).check_crc(), f"bit {bit}"


def test_walks_the_batches_of_a_buffer() -> None:
    buffer = build_batch([(1, None, b"a", ())]) + build_batch([(1, None, b"bb", ())] * 2, base_offset=1)
    assert [(batch.base_offset, batch.count) for batch in iter_batches(buffer)] == [(0, 1), (1, 2)]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 10, 20, 60, 84])
def test_walking_stops_with_an_error_at_a_cut_off_batch(cut: int) -> None:
    batches = iter_batches((GOLDEN + GOLDEN + GOLDEN)[: 2 * 84 + 84 - cut] if cut < 84 else GOLDEN + b"\0")
    assert next(batches).count == 2
    with pytest.raises(BatchError):
        list(batches)


def edited(position: int, hexadecimal: str) -> bytes:
    out = bytearray(GOLDEN)
    new = bytes.fromhex(hexadecimal)
    out[position : position + len(new)] = new
    return bytes(out)


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE, "0 bytes are too few"),
        (GOLDEN[:60], ErrorCode.CORRUPT_MESSAGE, "60 bytes are too few"),
        (GOLDEN[:61], ErrorCode.CORRUPT_MESSAGE, "84 bytes is cut off after 61"),
        (GOLDEN[:83], ErrorCode.CORRUPT_MESSAGE, "84 bytes is cut off after 83"),
        (edited(8, "00000030"), ErrorCode.CORRUPT_MESSAGE, "batch length 48 is less than the 49"),
        (edited(8, "00000000"), ErrorCode.CORRUPT_MESSAGE, "batch length 0"),
        (edited(8, "ffffffff"), ErrorCode.CORRUPT_MESSAGE, "batch length -1"),
        (edited(8, "80000000"), ErrorCode.CORRUPT_MESSAGE, "batch length -2147483648"),
        (edited(8, "7fffffff"), ErrorCode.CORRUPT_MESSAGE, "2147483659 bytes is cut off"),
        (edited(16, "01"), ErrorCode.INVALID_RECORD, "message format 1"),
        (edited(16, "00")[:30], ErrorCode.INVALID_RECORD, "message format 0"),
        (edited(16, "03"), ErrorCode.CORRUPT_MESSAGE, "magic byte is 3"),
        (edited(16, "ff"), ErrorCode.CORRUPT_MESSAGE, "magic byte is -1"),
        (bytes(61), ErrorCode.INVALID_RECORD, "message format 0"),
    ],
)
def test_refuses_to_read_what_is_no_batch(data: bytes, code: ErrorCode, message: str) -> None:
    for buffer, position in ((data, 0), (b"12345" + data, 5)):
        with pytest.raises(BatchError, match=message) as raised:
            read_batch(buffer, position)
        assert raised.value.code is code
        assert isinstance(raised.value, BrokerError)


def test_an_unknown_codec_is_refused_when_the_records_are_wanted() -> None:
    batch = read_batch(edited(21, "0005"))
    with pytest.raises(BatchError, match="codec 5"):
        batch.records()
    assert "codec 5" in repr(batch)


def test_the_repr_reads_like_a_status_line() -> None:
    assert repr(read_batch(GOLDEN)) == (
        "<Batch offsets 0-1, 2 records, 84 bytes, epoch 0, producer 4242/7 from 2147483647, transactional>"
    )
    batch = read_batch(
        build_batch([(1, None, b"v" * 100, ())], compression=Compression.LZ4, base_offset=9, control=True)
    )
    assert repr(batch) == f"<Batch offsets 9-9, 1 records, {batch.size} bytes, epoch -1, lz4, control>"
