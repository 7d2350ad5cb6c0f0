"""Records as JSON: what is read is what was written, and what is no record is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import Record
from tailrace.wire.json.record_json import BadRecord, ParsedRecord, parse_record, record_row

maybe_bytes = st.none() | st.binary(max_size=30) | st.text(max_size=10).map(str.encode)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3))
def test_a_record_survives_the_way_through_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    row = record_row("t", 3, Record(7, 1234, key, value, tuple(headers)))
    parsed = parse_record(json.dumps(row))
    assert parsed == ParsedRecord(value=value, key=key, partition=3, timestamp=1234, headers=headers)


def test_text_stays_readable_and_binary_says_so() -> None:
    row = record_row("t", 0, Record(0, 0, b"k", b"\xff", (("h", b"\x80"),)))
    assert (row["key"], row["value"], row["value_encoding"]) == ("k", "/w==", "base64")
    assert "key_encoding" not in row
    assert row["headers"] == [{"name": "h", "value": "gA==", "encoding": "base64"}]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"value": "v"}', b"v"),
        ('{"value": null}', None),
        ('{"value": {"a": [1, true]}}', b'{"a":[1,true]}'),
        ('{"value": 5}', b"5"),
        ('{"value": "v", "value_encoding": "json"}', b'"v"'),
        ('{"value": null, "value_encoding": "json"}', b"null"),
        ('{"value": "AAE=", "value_encoding": "base64"}', b"\x00\x01"),
        ('{"value": "\\u00fc"}', "ü".encode()),
    ],
)
def test_a_value_is_text_json_or_base64(line: str, value: bytes | None) -> None:
    assert parse_record(line).value == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"value": "v", "encoding": "text"}', b"v"),
        ('{"value": "v", "encoding": "json"}', b'"v"'),
        ('{"value": "AAE=", "encoding": "base64"}', b"\x00\x01"),
        ('{"value": "AAE=", "encoding": "base64", "value_encoding": "base64"}', b"\x00\x01"),
        ('{"value": 123456789012345678901234567890}', b"123456789012345678901234567890"),
        ('{"value": [1.0, "\\u00fc"]}', '[1.0,"ü"]'.encode()),
    ],
)
def test_encoding_is_that_of_the_value(line: str, value: bytes) -> None:
    assert parse_record(line).value == value


def test_a_key_has_an_encoding_of_its_own() -> None:
    parsed = parse_record('{"key": "/w==", "key_encoding": "base64", "value": "/w==", "encoding": "text"}')
    assert (parsed.key, parsed.value) == (b"\xff", b"/w==")


def test_topic_and_offset_of_a_record_that_was_read_are_passed_over() -> None:
    assert parse_record('{"topic": "t", "offset": 7, "value": "v"}') == ParsedRecord(value=b"v")


def test_headers_may_be_an_object() -> None:
    assert parse_record('{"value": "", "headers": {"a": "1", "b": null}}').headers == [
        ("a", b"1"),
        ("b", None),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "this is not JSON"),
        ("[]", "a record is an object"),
        ('{"key": "k"}', "a record needs a value; null is a tombstone"),
        ('{"value": "v", "valu": 1}', "a record has no valu; it may have encoding, headers, key,"),
        ('{"value": "v", "partition": -1}', "partition: Expected int >= 0"),
        ('{"value": "v", "headers": [1]}', 'headers are [{"name": "h", "value": "v"}] or {"h": "v"}'),
    ],
)
def test_a_refusal_says_what_would_be_right(line: str, words: str) -> None:
    with pytest.raises(BadRecord) as told:
        parse_record(line)
    assert words in str(told.value)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "5",
        "{}",
        '{"key": "k"}',
        '{"value": "v", "valu": 1}',
        '{"value": "v", "partition": -1}',
        '{"value": "v", "partition": "0"}',
        '{"value": "v", "partition": true}',
        '{"value": "v", "timestamp": 1.5}',
        '{"value": "v", "value_encoding": "hex"}',
        '{"value": "!", "value_encoding": "base64"}',
        '{"value": "ü", "value_encoding": "base64"}',
        '{"value": 5, "value_encoding": "base64"}',
        '{"value": "v", "encoding": "text", "value_encoding": "json"}',
        '{"value": "v", "timestamp": 9223372036854775808}',
        '{"value": "v", "partition": 2147483648}',
        '{"value": {"a": "\\ud800"}}',
        '{"value": NaN}',
        '{"value": "v", "headers": "h"}',
        '{"value": "v", "headers": [{"name": "h", "valeu": "x"}]}',
        '{"value": "v", "headers": {"\\ud800": "x"}}',
        '{"value": "v", "headers": [1]}',
        '{"value": "v", "headers": [{"value": "x"}]}',
        '{"value": "\\ud800"}',
        "[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(BadRecord):
        parse_record(line)
