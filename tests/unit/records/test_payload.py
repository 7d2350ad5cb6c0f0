"""Records of an uncompressed payload, in both twins: bytes written by hand, sound and malformed."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tailrace.records import BatchError, Record

# length 12 | attributes 0 | timestamp +0 | offset +0 | key "k" | value "v1" | 1 header: "h" = None
FIRST = "18 00 00 00 02 6b 04 76 31 02 02 68 01"
# length 9 | attributes 0 | timestamp -1 | offset +1 | no key | empty value | 1 header: "" = "x"
SECOND = "12 00 01 02 01 00 02 00 02 78"
SMALLEST = "0c 00 00 00 01 01 00"

RECORDS = [
    Record(100, 5000, b"k", b"v1", (("h", None),)),
    Record(101, 4999, None, b"", (("", b"x"),)),
]


def decode(
    twin: ModuleType,
    payload: str | bytes,
    *,
    count: int = 1,
    append_time: int | None = None,
    base_offset: int = 100,
    base_timestamp: int = 5000,
    last_delta: int | None = None,
) -> Iterator[Record]:
    records: Iterator[Record] = twin.decode_records(
        bytes.fromhex(payload) if isinstance(payload, str) else payload,
        base_offset=base_offset,
        base_timestamp=base_timestamp,
        append_time=append_time,
        count=count,
        last_delta=max(count - 1, 0) if last_delta is None else last_delta,
    )
    return records


def test_decodes_bytes_written_by_hand(twin: ModuleType) -> None:
    assert list(decode(twin, FIRST + SECOND, count=2)) == RECORDS


def test_encodes_the_same_bytes(twin: ModuleType) -> None:
    out, count, base, greatest = twin.encode_records(
        [(5000, b"k", b"v1", [("h", None)]), (4999, None, b"", (("", b"x"),))], reserve=3
    )
    assert out == b"\0\0\0" + bytes.fromhex(FIRST + SECOND)
    assert (count, base, greatest) == (2, 5000, 5000)


def test_encodes_kept_records_at_their_offsets(twin: ModuleType) -> None:
    out, greatest = twin.encode_kept(RECORDS, base_offset=100, base_timestamp=5000, reserve=0)
    assert (out, greatest) == (bytes.fromhex(FIRST + SECOND), 5000)
    out, greatest = twin.encode_kept([], base_offset=100, base_timestamp=5000, reserve=2)
    assert (out, greatest) == (b"\0\0", -1)


def test_a_record_is_a_plain_named_tuple(twin: ModuleType) -> None:
    record = next(decode(twin, FIRST))
    assert type(record) is Record
    assert record == tuple(RECORDS[0])
    assert hash(record) == hash(RECORDS[0])
    assert (record.offset, record.timestamp, record.key, record.value) == (100, 5000, b"k", b"v1")
    assert type(record.key) is bytes
    assert type(record.headers) is tuple


def test_append_time_replaces_every_timestamp(twin: ModuleType) -> None:
    records = decode(twin, FIRST + SECOND, count=2, append_time=77)
    assert [record.timestamp for record in records] == [77, 77]


def test_offsets_may_have_gaps_after_compaction(twin: ModuleType) -> None:
    (record,) = decode(twin, "0c 00 00 06 01 01 00", last_delta=9)
    assert record.offset == 103


def test_attributes_of_a_record_are_ignored(twin: ModuleType) -> None:
    (record,) = decode(twin, "0c ff 00 00 01 01 00")
    assert record == Record(100, 5000, None, None, ())


def test_an_emptied_batch_has_no_records(twin: ModuleType) -> None:
    assert list(decode(twin, "", count=0, last_delta=4)) == []


def test_decoding_is_lazy_and_ends_at_the_first_fault(twin: ModuleType) -> None:
    records = decode(twin, FIRST + "ff", count=2)
    assert next(records) == RECORDS[0]
    with pytest.raises(BatchError):
        next(records)
    with pytest.raises(StopIteration):
        next(records)


def test_extreme_offsets_and_timestamps(twin: ModuleType) -> None:
    top = 2**63 - 1
    (record,) = decode(twin, SMALLEST, base_offset=top, base_timestamp=top)
    assert (record.offset, record.timestamp) == (top, top)
    (record,) = decode(twin, SMALLEST, base_offset=-1, base_timestamp=-(2**63))
    assert (record.offset, record.timestamp) == (-1, -(2**63))


MALFORMED = {
    "nothing where a record should be": "",
    "length cut off": "80",
    "negative length": "01 00 00 00 01 01 00",
    "length past the end": "0e 00 00 00 01 01 00",
    "length of 2^31 - 1": "fe ff ff ff 0f 00 00 00 01 01 00",
    "length zero": "00",
    "length too short for the fields": "0a 00 00 00 01 01 00",
    "length too long for the fields": "0e 00 00 00 01 01 00 00",
    "overlong length": "8c 80 80 80 80 00 00 00 00 01 01 00",
    "attributes alone": "02 00",
    "timestamp cut off": "04 00 80",
    "overlong timestamp": "1e 00 80 80 80 80 80 80 80 80 80 02 00 01 01 00",
    "offset delta missing": "04 00 00",
    "overlong offset delta": "16 00 00 80 80 80 80 80 00 01 01 00",
    "offset delta beyond 32 bits": "14 00 00 80 80 80 80 10 01 01 00",
    "negative offset delta": "0c 00 00 01 01 01 00",
    "offset delta past the last": "0c 00 00 02 01 01 00",
    "key of -2 bytes": "0c 00 00 00 03 01 00",
    "key past the record": "0c 00 00 00 06 01 00",
    "key of 2^31 - 1 bytes": "14 00 00 00 fe ff ff ff 0f 01 00",
    "key missing": "06 00 00 00",
    "value of -2 bytes": "0c 00 00 00 01 03 00",
    "value past the record": "0c 00 00 00 01 04 00",
    "value missing": "08 00 00 00 01",
    "header count missing": "0a 00 00 00 01 01",
    "header count of -1": "0c 00 00 00 01 01 01",
    "more headers than bytes": "10 00 00 00 01 01 04 00 01",
    "2^31 - 1 headers": "14 00 00 00 01 01 fe ff ff ff 0f",
    "null header key": "10 00 00 00 01 01 02 01 01",
    "header key past the record": "10 00 00 00 01 01 02 04 01",
    "header key is not UTF-8": "12 00 00 00 01 01 02 02 ff 01",
    "header key is a surrogate": "16 00 00 00 01 01 02 06 ed a0 80 01",
    "header value of -2 bytes": "10 00 00 00 01 01 02 00 03",
    "header value past the record": "10 00 00 00 01 01 02 00 02",
    "header value missing": "12 00 00 00 01 01 02 04 68 68",
    "a header more than counted": "14 00 00 00 01 01 02 00 01 00 01",
    "a byte after the last record": SMALLEST + "00",
    "a record after the last record": SMALLEST + "0c 00 00 02 01 01 00",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_refuses_malformed_records(twin: ModuleType, payload: str) -> None:
    with pytest.raises(BatchError):
        list(decode(twin, payload))


def test_the_smallest_record_is_sound(twin: ModuleType) -> None:
    """What most malformed payloads above are one byte away from."""
    assert list(decode(twin, SMALLEST)) == [Record(100, 5000, None, None, ())]


@pytest.mark.parametrize("cut", range(1, 23))
def test_refuses_a_payload_cut_off_anywhere(twin: ModuleType, cut: int) -> None:
    payload = bytes.fromhex(FIRST + SECOND)
    assert len(payload) > cut
    with pytest.raises(BatchError):
        list(decode(twin, payload[:-cut], count=2))


@pytest.mark.parametrize(
    ("count", "last_delta", "why"), [(3, 2, "too few records"), (1, 1, "follow"), (0, 1, "follow")]
)
def test_refuses_another_count_than_the_header_says(
    twin: ModuleType, count: int, last_delta: int, why: str
) -> None:
    with pytest.raises(BatchError):
        list(decode(twin, FIRST + SECOND, count=count, last_delta=last_delta))


def test_refuses_a_record_that_claims_bytes_of_the_next(twin: ModuleType) -> None:
    second = "0c 00 00 02 01 01 00"
    assert len(list(decode(twin, SMALLEST + second, count=2))) == 2
    with pytest.raises(BatchError):
        list(decode(twin, "0e" + SMALLEST[2:] + second, count=2))


def test_refuses_offsets_that_repeat_or_go_back(twin: ModuleType) -> None:
    for second in ("0c 00 00 00 01 01 00", "0c 00 00 01 01 01 00"):
        with pytest.raises(BatchError, match="offset delta"):
            list(decode(twin, SMALLEST + second, count=2))


@pytest.mark.parametrize(
    "header",
    [{"count": -1}, {"last_delta": -1}, {"base_offset": 2**63 - 1, "last_delta": 1}],
    ids=["negative count", "negative last delta", "offsets beyond 64 bits"],
)
def test_refuses_header_fields_that_cannot_be(twin: ModuleType, header: dict[str, int]) -> None:
    with pytest.raises(BatchError):
        decode(twin, SMALLEST, **header)


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, "02"), (-(2**63), "01")])
def test_refuses_timestamps_beyond_64_bits(twin: ModuleType, base: int, delta: str) -> None:
    payload = f"0c 00 {delta} 00 01 01 00"
    with pytest.raises(BatchError, match="timestamp"):
        list(decode(twin, payload, base_timestamp=base))
    assert len(list(decode(twin, payload, base_timestamp=base, append_time=1))) == 1


def test_refuses_a_bomb_of_headers(twin: ModuleType) -> None:
    """Each header of two bytes becomes objects of more than a hundred."""
    body = bytearray.fromhex("00 00 00 01 01")
    twin.write_varint(body, 65537)
    body += bytes.fromhex("00 01") * 65537
    payload = bytearray()
    twin.write_varint(payload, len(body))
    with pytest.raises(BatchError, match="header"):
        list(decode(twin, bytes(payload + body)))


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ((2**63, None, None, ()), BatchError),
        ((-(2**63) - 1, None, None, ()), BatchError),
        (("now", None, None, ()), TypeError),
        ((0, "text", None, ()), TypeError),
        ((0, None, 7, ()), TypeError),
        ((0, None, None, [(b"k", b"v")]), (TypeError, AttributeError)),
        ((0, None, None, [("k", "v")]), TypeError),
        ((0, None, None, [("\ud800", b"v")]), BatchError),
        ((0, None, None, [("k", b"v")] * 65537), BatchError),
        ((0, None, None), ValueError),
    ],
)
def test_refuses_to_encode_what_is_no_record(
    twin: ModuleType, record: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        twin.encode_records([(0, b"k", b"v", ()), record], reserve=0)


def test_refuses_to_encode_timestamps_too_far_apart(twin: ModuleType) -> None:
    for first, second in ((-(2**63), 0), (2**63 - 1, -2)):
        with pytest.raises(BatchError, match="64 bits"):
            twin.encode_records([(first, None, None, ()), (second, None, None, ())], reserve=0)


def test_refuses_to_encode_kept_offsets_outside_the_batch(twin: ModuleType) -> None:
    for offset in (99, 100 + 2**31):
        with pytest.raises(BatchError, match="offset delta"):
            twin.encode_kept([Record(offset, 0, None, None)], base_offset=100, base_timestamp=0, reserve=0)


def test_encodes_any_kind_of_bytes(twin: ModuleType) -> None:
    plain, *_ = twin.encode_records([(0, b"key", b"value", [("h", b"x")])], reserve=0)
    other, *_ = twin.encode_records(
        iter([[0, bytearray(b"key"), memoryview(b"_value_")[1:-1], (["h", bytearray(b"x")],)]]), reserve=0
    )
    assert other == plain


def test_no_headers_may_be_none(twin: ModuleType) -> None:
    plain, *_ = twin.encode_records([(0, None, None, ())], reserve=0)
    other, *_ = twin.encode_records([(0, None, None, None)], reserve=0)
    assert other == plain == bytes.fromhex(SMALLEST)
