"""Records as properties and body: nothing is lost whatever a record holds, and text stays readable."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.native import generated

from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.native import (
    PROPERTIES_MAX,
    RECORD_PROPERTIES_BYTES_MAX,
    RECORD_PROPERTIES_MAX,
    Header,
    properties_of_record,
    read_properties,
    record_of_properties,
)


def sent(key: bytes | None, value: bytes | None, headers: list[Header]) -> dict[str, str]:
    """The properties of a record as its reader sees them."""
    return read_properties(properties_of_record(key, value, headers)[0])


def in_headers(properties: dict[str, str]) -> list[list[str | None]]:
    """What `_headers` holds, by the standard library."""
    found: list[list[str | None]] = json.loads(base64.b64decode(properties["_headers"], validate=True))
    return found


keys = st.none() | generated.binaries
values = st.none() | st.binary(max_size=20)


@given(key=keys, value=values, headers=generated.headers | generated.plain_headers)
def test_every_record_comes_back(key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
    properties, body = properties_of_record(key, value, headers)
    assert isinstance(body, bytes)
    assert record_of_properties(read_properties(properties), body) == (key, value, headers)


@given(headers=generated.plain_headers)
def test_headers_of_plain_text_are_properties_and_nothing_else(headers: list[Header]) -> None:
    expected = {name: value.decode() for name, value in headers if value is not None}
    assert sent(None, b"", headers) == expected


@pytest.mark.parametrize("key", [b"", b"user-7", "schlüssel".encode(), b"a=b"])
def test_a_key_of_text_is_readable(key: bytes) -> None:
    assert sent(key, b"", []) == {"_key": key.decode()}


@pytest.mark.parametrize("key", [b"\0", b"a\0b", b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_any_other_key_is_base64(key: bytes) -> None:
    assert sent(key, b"", []) == {"_key64": base64.b64encode(key).decode()}


def test_a_record_without_key_and_headers_has_no_properties() -> None:
    assert properties_of_record(None, b"value", []) == (b"", b"value")


def test_a_tombstone_is_told_from_an_empty_value() -> None:
    assert properties_of_record(b"k", None, []) == (b"_key=k\0_null=1\0", b"")
    assert properties_of_record(b"k", b"", []) == (b"_key=k\0", b"")
    assert record_of_properties({"_null": "1"}, b"") == (None, None, [])
    assert record_of_properties({}, b"") == (None, b"", [])


UNFIT: list[Header] = [
    ("", b"empty name"),
    ("_reserved", b"x"),
    ("a=b", b"x"),
    ("a\0b", b"x"),
    ("nul", b"a\0b"),
    ("binary", b"\xff\xfe"),
    ("null", None),
]


@pytest.mark.parametrize("unfit", UNFIT, ids=[repr(name) for name, _ in UNFIT])
def test_one_header_that_does_not_fit_makes_all_travel_in_headers(unfit: Header) -> None:
    headers: list[Header] = [("colour", b"red"), unfit, ("size", "größe".encode())]
    properties = sent(None, b"", headers)
    assert in_headers(properties) == [
        [name, None if value is None else base64.b64encode(value).decode()] for name, value in headers
    ]
    del properties["_headers"]
    assert properties == {"colour": "red", "size": "größe"}


def test_a_repeated_header_travels_in_headers_alone() -> None:
    properties = sent(None, b"", [("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert in_headers(properties) == [["a", "MQ=="], ["b", "Mg=="], ["a", "Mw=="]]
    assert {name for name in properties if name != "_headers"} == {"b"}


def test_more_headers_than_properties_are_allowed_travel_in_headers_alone() -> None:
    headers: list[Header] = [(f"h{at}", b"x") for at in range(RECORD_PROPERTIES_MAX + 1)]
    assert set(sent(None, b"", headers)) == {"_headers"}
    assert record_of_properties(sent(None, b"", headers), b"") == (None, b"", headers)


def test_as_many_headers_as_allowed_leave_room_for_the_properties_of_the_frame() -> None:
    headers: list[Header] = [(f"h{at}", b"x") for at in range(RECORD_PROPERTIES_MAX)]
    for given_headers in (headers, [*headers[:-1], ("_", b"")]):
        assert len(sent(b"k", None, given_headers)) <= PROPERTIES_MAX - 10


@pytest.mark.parametrize("length", [1, 64, 65, 2000])
def test_names_of_any_length_are_properties(length: int) -> None:
    name = "n" * length
    assert sent(None, b"", [(name, b"x")]) == {name: "x"}


def test_what_has_headers_takes_them_and_ignores_other_properties() -> None:
    encoded = base64.b64encode(b'[["_a", null], ["a", "AA=="]]').decode()
    properties = {"a": "b", "_topic": "t", "_headers": encoded}
    assert record_of_properties(properties, b"v") == (None, b"v", [("_a", None), ("a", b"\0")])
    empty = {"a": "b", "_headers": base64.b64encode(b"[]").decode()}
    assert record_of_properties(empty, b"v") == (None, b"v", [])


def test_reserved_properties_do_not_become_headers() -> None:
    properties = {"_topic": "t", "_unheard_of": "x", "colour": "red", "_key": "k"}
    assert record_of_properties(properties, b"v") == (b"k", b"v", [("colour", b"red")])


def test_a_value_is_handed_through_and_not_copied() -> None:
    body = memoryview(bytearray(b"value"))
    assert record_of_properties({"_key": "k"}, body)[1] is body
    assert properties_of_record(b"k", body, [])[1] is body


@pytest.mark.parametrize(
    ("properties", "cause"),
    [
        ({"_key": "a", "_key64": "YQ=="}, "not both"),
        ({"_key64": "*"}, "_key64 = "),
        ({"_key64": "YQ"}, "_key64 = "),
        ({"_key64": "YQ==YQ=="}, "_key64 = "),
        ({"_key64": "Y\nQ=="}, "_key64 = "),
        ({"_key64": "é"}, "_key64 = "),
        ({"_headers": ""}, "JSON"),
        ({"_headers": "*"}, "_headers = "),
        ({"_null": "0"}, "_null=1"),
        ({"_null": ""}, "_null=1"),
    ],
)
def test_what_is_no_record_is_refused(properties: dict[str, str], cause: str) -> None:
    with pytest.raises(BrokerError, match=cause) as caught:
        record_of_properties(properties, b"")
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"{}",
            b"null",
            b"[",
            b"[[]]",
            b'["ab"]',
            b'[["a"]]',
            b'[["a", "YQ==", 1]]',
            b'[["a", "YQ=="]]x',
        ),
        *(b'[[1, "YQ=="]]', b'[[null, "YQ=="]]', b'[["a", 1]]', b'[["a", "*"]]', b'[["a", "YQ"]]'),
        *(b'[["\xff", null]]', b'[["\\ud800", null]]', b"[" * 50_000),
    ],
)
def test_headers_that_are_no_list_of_pairs_are_refused(text: bytes) -> None:
    with pytest.raises(BrokerError, match="_headers is not what it should be") as caught:
        record_of_properties({"_headers": base64.b64encode(text).decode()}, b"")
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_tombstone_with_a_body_is_refused() -> None:
    with pytest.raises(BrokerError, match="empty body"):
        record_of_properties({"_null": "1"}, b"x")


@pytest.mark.parametrize("headers", [[("\ud800", b"x")], [("\ud800" * 100, b"x")], [("_\udfff", b"x")]])
def test_a_name_that_utf8_cannot_express_is_refused(headers: list[Header]) -> None:
    with pytest.raises(BrokerError, match="surrogate"):
        properties_of_record(None, b"", headers)


def test_a_client_cannot_send_more_than_its_server_reads() -> None:
    fits = b"k" * (RECORD_PROPERTIES_BYTES_MAX - len("_key=\0"))
    assert sent(fits, b"", []) == {"_key": fits.decode()}
    for key, headers in (
        (fits + b"k", []),
        (None, [("header", fits)]),
        (fits[: len(fits) * 3 // 4] + b"\xff", []),
    ):
        with pytest.raises(BrokerError, match="into the body") as caught:
            properties_of_record(key, b"", headers)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
