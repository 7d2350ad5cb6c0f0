"""What a producer's batch must satisfy: one sound batch passes, and each rule broken alone is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tailrace.model import ErrorCode
from tailrace.records import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchError,
    Compression,
    NewRecord,
    build_batch,
    crc32c,
    validate_batch,
)

RECORDS: list[NewRecord] = [(1000, b"k", b"value", ()), (1001, None, b"value", ())]
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}

LENGTH = (8, ">i")
MAGIC = (16, ">b")
ATTRIBUTES = (21, ">h")
LAST_DELTA = (23, ">i")
PRODUCER_ID = (43, ">q")
COUNT = (57, ">i")


def patched(data: bytearray, field: tuple[int, str], value: int) -> bytearray:
    """With one field changed and the CRC true again."""
    position, layout = field
    struct.pack_into(layout, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def refusal(data: bytes | bytearray, **arguments: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(BatchError) as raised:
        validate_batch(data, **{"bytes_max": 10_000, **arguments})
    return raised.value.code, str(raised.value)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("fields", [{}, IDEMPOTENT, {**IDEMPOTENT, "transactional": True}])
def test_accepts_what_producers_send(codec: Compression, fields: dict[str, Any]) -> None:
    data = build_batch(RECORDS, compression=codec, **fields)
    batch = validate_batch(memoryview(data), bytes_max=len(data))
    assert batch.count == 2
    assert batch.data.obj is data
    assert batch.compression is codec


def test_does_not_look_at_offset_and_epoch_which_the_broker_assigns() -> None:
    assert validate_batch(build_batch(RECORDS, base_offset=-5, leader_epoch=-9), bytes_max=1000).count == 2


def test_does_not_decompress() -> None:
    data = patched(build_batch(RECORDS), ATTRIBUTES, Compression.GZIP)
    data[HEADER_BYTES : HEADER_BYTES + 3] = b"\x1f\x8b\x08"
    assert validate_batch(sealed(data), bytes_max=1000).compression is Compression.GZIP


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("written", [*Compression])
def test_refuses_records_that_are_not_of_the_codec_that_the_batch_says(
    codec: Compression, written: Compression
) -> None:
    data = build_batch(RECORDS, compression=written)
    data[22] = data[22] & ~COMPRESSION_MASK | codec
    data = sealed(data)
    if written is codec:
        assert validate_batch(data, bytes_max=1000).compression is codec
        return
    code, text = refusal(data)
    assert code is ErrorCode.INVALID_RECORD and f"not compressed with {codec.name.lower()}" in text


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("first", range(0x50, 0x60))
def test_a_skippable_frame_may_come_first(codec: Compression, first: int) -> None:
    data = build_batch(RECORDS, compression=codec)
    data[HEADER_BYTES:HEADER_BYTES] = bytes([first, 0x2A, 0x4D, 0x18, 0, 0, 0, 0])
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    batch = validate_batch(sealed(data), bytes_max=1000)
    assert len(list(batch.records())) == len(RECORDS)


def sealed(data: bytearray) -> bytearray:
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


@pytest.mark.parametrize("cut", [1, 30, 61, 84])
def test_refuses_a_batch_that_is_cut_off(cut: int) -> None:
    data = build_batch(RECORDS)
    code, _ = refusal(data[:-cut])
    assert code is ErrorCode.CORRUPT_MESSAGE


def test_refuses_bytes_after_the_batch() -> None:
    data = build_batch(RECORDS)
    for rest in (b"\0", bytes(data)):
        code, message = refusal(data + rest)
        assert code is ErrorCode.INVALID_RECORD
        assert "one batch per partition" in message


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1, -(2**31)])
def test_refuses_a_length_that_cannot_be(length: int) -> None:
    code, message = refusal(patched(build_batch(RECORDS), LENGTH, length))
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert str(length) in message


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_refuses_other_formats(magic: int, code: ErrorCode) -> None:
    assert refusal(patched(build_batch(RECORDS), MAGIC, magic))[0] is code


def test_tells_an_old_client_what_to_do_even_if_its_message_is_tiny() -> None:
    code, message = refusal(bytes(8) + (14).to_bytes(4, "big") + bytes(14))
    assert code is ErrorCode.INVALID_RECORD
    assert "0.11 or later" in message


def test_refuses_a_batch_over_the_limit_before_reading_it() -> None:
    data = build_batch(RECORDS)
    data[-1] ^= 1
    code, message = refusal(data, bytes_max=len(data) - 1)
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(data)) in message


@pytest.mark.parametrize("position", [17, 21, 40, 61, -1])
def test_refuses_a_wrong_crc(position: int) -> None:
    data = build_batch(RECORDS)
    data[position] ^= 0x40
    code, message = refusal(data)
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert "CRC" in message


@pytest.mark.parametrize(
    ("field", "value"), [(COUNT, 0), (COUNT, -1), (COUNT, 3), (COUNT, 1), (LAST_DELTA, 2)]
)
def test_refuses_a_count_that_is_not_the_offsets_spanned(field: tuple[int, str], value: int) -> None:
    code, message = refusal(patched(build_batch(RECORDS), field, value))
    assert code is ErrorCode.INVALID_RECORD
    assert "last offset delta" in message


def test_refuses_no_records_at_all() -> None:
    data = patched(patched(build_batch(RECORDS), COUNT, 0), LAST_DELTA, -1)
    assert refusal(data)[0] is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_refuses_unknown_codecs(codec: int) -> None:
    code, message = refusal(patched(build_batch(RECORDS), ATTRIBUTES, codec))
    assert code is ErrorCode.INVALID_RECORD
    assert f"codec {codec}" in message


def test_control_batches_are_for_the_broker() -> None:
    data = build_batch(RECORDS[:1], control=True, producer_id=7, producer_epoch=0, transactional=True)
    code, message = refusal(data)
    assert code is ErrorCode.INVALID_RECORD
    assert "control" in message
    assert validate_batch(data, bytes_max=1000, allow_control=True).is_control


def test_the_delete_horizon_is_for_compaction() -> None:
    code, message = refusal(patched(build_batch(RECORDS), ATTRIBUTES, 0x40))
    assert code is ErrorCode.INVALID_RECORD
    assert "delete horizon" in message


def test_transactional_batches_where_they_are_not_allowed() -> None:
    data = build_batch(RECORDS, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    code, message = refusal(data, allow_transactional=False)
    assert code is ErrorCode.INVALID_RECORD
    assert "transactional" in message


@pytest.mark.parametrize(
    "fields",
    [
        {"transactional": True},
        {"producer_id": 7},
        {"producer_id": 7, "producer_epoch": 0},
        {"producer_id": 7, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": -2},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_refuses_producer_fields_that_do_not_go_together(fields: dict[str, Any]) -> None:
    code, message = refusal(build_batch(RECORDS, **fields))
    assert code is ErrorCode.INVALID_RECORD
    assert "producer id" in message
