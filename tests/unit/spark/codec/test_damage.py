"""Broken bytes, in both twins: what is raised, what is set aside, what is still read."""

from __future__ import annotations

from types import ModuleType

import pytest

from tailrace.model import ErrorCode
from tailrace.records import BatchError, Compression, build_batch, crc32c
from tailrace.spark.codec import Sound, decode, decode_sound

END = 1 << 60


def batch_at(base_offset: int, *, count: int = 3, codec: Compression = Compression.NONE) -> bytearray:
    records = [(1000 + i, b"key", b"value" * 9, [("h", b"x")]) for i in range(count)]
    return build_batch(records, base_offset=base_offset, compression=codec)


def with_crc(data: bytearray) -> bytearray:
    """The batch with a checksum that is true of what it now holds."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


def strict(data: bytes | bytearray, *, start: int = 0, end: int = END) -> list[int]:
    batch = decode(data, start=start, end=end, topic="orders", partition=3, headers=True)
    return list(batch.column("offset").to_pylist())


def sound(data: bytes | bytearray, *, start: int = 0, end: int = END) -> Sound:
    return decode_sound(data, start=start, end=end, topic="orders", partition=3, headers=True)


def offsets(found: Sound) -> list[int]:
    return [at for rows in found.rows for at in rows.column("offset").to_pylist()]


def damaged_crc() -> bytearray:
    data = batch_at(3)
    data[-1] ^= 1
    return data


def damaged_record() -> bytearray:
    data = batch_at(3)
    data[61] = 0x01  # a length of -1
    return with_crc(data)


def damaged_last_record() -> bytearray:
    data = batch_at(3)
    data[-1:] = b""
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return with_crc(data)


def damaged_header_name() -> bytearray:
    data = build_batch([(1, None, None, [("ab", None)])] * 3, base_offset=3)
    data[data.index(b"ab")] = 0xFF
    return with_crc(data)


def damaged_codec() -> bytearray:
    data = batch_at(3)
    data[22] = 4
    return with_crc(data)


def unknown_codec() -> bytearray:
    data = batch_at(3)
    data[22] = 7
    return with_crc(data)


def too_many_records() -> bytearray:
    data = batch_at(3)
    data[57:61] = (1 << 30).to_bytes(4, "big")
    return with_crc(data)


def negative_records() -> bytearray:
    data = batch_at(3)
    data[57:61] = b"\xff" * 4
    return with_crc(data)


def negative_delta() -> bytearray:
    data = batch_at(3)
    data[23:27] = b"\xff" * 4
    return with_crc(data)


def records_of_none() -> bytearray:
    data = batch_at(3)
    data[57:61] = bytes(4)
    return with_crc(data)


DAMAGES = [
    damaged_crc,
    damaged_record,
    damaged_last_record,
    damaged_header_name,
    damaged_codec,
    unknown_codec,
    too_many_records,
    negative_records,
    negative_delta,
    records_of_none,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_error_names_topic_partition_and_offset(twin: ModuleType, damage: object) -> None:
    assert callable(damage)
    with pytest.raises(BatchError, match=r"^orders-3 at offset 3: "):
        strict(batch_at(0) + damage() + batch_at(6))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_batch_is_set_aside_and_the_others_are_read(twin: ModuleType, damage: object) -> None:
    assert callable(damage)
    before, bad, after = batch_at(0), damage(), batch_at(6, codec=Compression.SNAPPY)
    found = sound(before + bad + after)
    assert offsets(found) == [0, 1, 2, 6, 7, 8]
    (span,) = found.bad
    assert (span.position, span.size, span.first_offset) == (len(before), len(bad), 3)
    assert span.reason
    assert found.next_offset == 9


def test_a_count_that_cannot_be_is_refused_before_room_is_made_for_it(twin: ModuleType) -> None:
    with pytest.raises(BatchError, match="1073741824 records cannot lie in"):
        strict(too_many_records())


def test_several_bad_batches_are_listed_in_order(twin: ModuleType) -> None:
    data = batch_at(0) + damaged_record() + batch_at(6)
    other = damaged_codec()
    other[:8] = (9).to_bytes(8, "big")
    found = sound(data + other)
    assert [span.first_offset for span in found.bad] == [3, 9]
    assert [span.next_offset for span in found.bad] == [6, 12]
    assert offsets(found) == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("damage", [damaged_record, damaged_crc])
def test_only_bad_batches_give_no_rows(twin: ModuleType, damage: object) -> None:
    assert callable(damage)
    found = sound(damage())
    assert (offsets(found), len(found.bad), found.next_offset) == ([], 1, 6)


def test_a_bad_batch_out_of_range_is_never_looked_at(twin: ModuleType) -> None:
    assert strict(batch_at(0) + damaged_crc(), end=3) == [0, 1, 2]


def test_offsets_that_go_back_are_refused(twin: ModuleType) -> None:
    with pytest.raises(BatchError, match="orders-3 at offset 2: its base offset"):
        strict(batch_at(0) + batch_at(2))
    with pytest.raises(BatchError, match="orders-3 at offset -5"):
        strict(batch_at(-5))


def test_offsets_at_the_end_of_64_bits_are_refused(twin: ModuleType) -> None:
    most = (1 << 63) - 1
    assert strict(batch_at(most - 3), end=most) == [most - 3, most - 2, most - 1]
    with pytest.raises(BatchError, match="out of range"):
        strict(batch_at(most - 2), end=most)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_where_a_header_makes_no_sense_the_rest_is_one_span(twin: ModuleType, magic: int) -> None:
    bad = batch_at(3)
    bad[16] = magic
    data = batch_at(0) + bad + batch_at(6)
    found = sound(data)
    (span,) = found.bad
    assert offsets(found) == [0, 1, 2]
    assert (span.position, span.size) == (len(batch_at(0)), len(data) - len(batch_at(0)))
    assert (span.first_offset, span.next_offset, found.next_offset) == (3, None, 3)
    with pytest.raises(BatchError, match="orders-3 at offset 3: "):
        strict(data)


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
def test_a_length_that_cannot_be_is_refused(twin: ModuleType, length: int) -> None:
    bad = batch_at(3)
    bad[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(BatchError, match="orders-3 at offset 3: batch length"):
        strict(batch_at(0) + bad)


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 62, 100])
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(twin: ModuleType, cut: int) -> None:
    data = batch_at(0) + batch_at(3)[:cut]
    assert strict(data) == [0, 1, 2]
    found = sound(data)
    assert (found.bad, found.next_offset) == ([], 3)


@pytest.mark.parametrize("cut", [1, 11, 12, 60, 61, 62, 100])
def test_a_first_batch_is_never_cut_off(twin: ModuleType, cut: int) -> None:
    with pytest.raises(BatchError, match="orders-3 at offset 40: ") as caught:
        strict(batch_at(40)[:cut], start=40)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_crcs_are_not_looked_at_when_told_so(twin: ModuleType) -> None:
    data = batch_at(0)
    data[-1] ^= 1  # of a header's value
    with pytest.raises(BatchError, match="CRC"):
        strict(data)
    batch = decode(data, start=0, end=END, topic="t", partition=0, headers=True, check_crcs=False)
    assert batch.num_rows == 3


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, END, 9), (0, 5, 5), (20, 30, 20), (0, 6, 6), (0, 8, 8)]
)
def test_tells_where_to_go_on(twin: ModuleType, start: int, end: int, expected: int) -> None:
    data = batch_at(0) + batch_at(6)
    assert sound(data, start=start, end=end).next_offset == expected


def batch_of(payload: str, *, base_timestamp: int = 1000, append_time: int | None = None) -> bytearray:
    """A batch of one record that is written by hand."""
    data = build_batch([(base_timestamp, None, None, ())], log_append_time_ms=append_time)
    data[61:] = bytes.fromhex(payload)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return with_crc(data)


# length 7 + 8 | attributes 0 | timestamp by 10 bytes | offset +0 | no key | no value | no headers
FAR = "1e 00 fe ff ff ff ff ff ff ff ff 01 00 01 01 00"
MOST = (1 << 63) - 1


def test_a_timestamp_that_wraps_around_64_bits_is_refused(twin: ModuleType) -> None:
    assert strict(batch_of("0c 00 00 00 01 01 00")) == [0]
    with pytest.raises(BatchError, match="timestamp"):
        strict(batch_of(FAR, base_timestamp=MOST))


def test_append_time_makes_deltas_meaningless(twin: ModuleType) -> None:
    assert strict(batch_of(FAR, base_timestamp=MOST, append_time=5)) == [0]


@pytest.mark.parametrize(
    "payload",
    [
        "1e 00 80 80 80 80 80 80 80 80 80 02 00 01 01 00",  # a tenth byte with more than one bit
        "20 00 80 80 80 80 80 80 80 80 80 80 00 00 01 01 00",  # an eleventh byte
        "10 00 00 00 01 01 02 01 01",  # a header whose name is null
        "10 00 00 00 01 01 04 00 01",  # two headers claimed, one there
        "0e 00 00 00 01 01 01 00",  # headers claimed: -1
        "0e 00 00 00 01 01 00 00",  # a byte after its headers
        "0c 00 00 00 01 01 00 00",  # a byte after the last record
        "0c 00 00 02 01 01 00",  # offset +1 in a batch of one
        "0c 00 00 00 03 01 00",  # a key of -2 bytes
        "0c 00 00 00 01 02 00",  # a value that would need the header count
        "8c 80 80 80 10 00 00 00 01 01 00",  # a length of more than 32 bits
    ],
)
def test_records_written_wrongly_by_hand_are_refused(twin: ModuleType, payload: str) -> None:
    with pytest.raises(BatchError, match="orders-3 at offset 0: "):
        strict(batch_of(payload))


def test_a_longer_form_of_a_varint_is_read(twin: ModuleType) -> None:
    assert strict(batch_of("8e 80 80 00 00 80 00 00 01 01 00")) == [0]
