"""Properties: their bytes, round trips, and what is refused on either side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.native import generated

from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.wire.native import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, read_properties, write_properties


def test_properties_have_the_documented_bytes() -> None:
    assert write_properties({"_topic": "events", "größe": "a=b", "empty": ""}) == (
        b"_topic=events\0gr\xc3\xb6\xc3\x9fe=a=b\0empty=\0"
    )
    assert write_properties({}) == b""


@given(properties=generated.properties)
def test_properties_come_back_in_their_order(properties: dict[str, str]) -> None:
    data = write_properties(properties)
    assert list(read_properties(data).items()) == list(properties.items())
    assert read_properties(memoryview(data)) == properties


@pytest.mark.parametrize(
    ("data", "cause"),
    {
        "no NUL at the end": (b"a=b", "do not end with a NUL"),
        "no NUL behind the last": (b"a=b\0c=d", "do not end with a NUL"),
        "no equals sign": (b"a=b\0colour\0", '"colour" has no "="'),
        "only a NUL": (b"\0", 'has no "="'),
        "two NULs": (b"a=b\0\0", 'has no "="'),
        "empty key": (b"=b\0", "empty key"),
        "repeated key": (b"a=b\0c=d\0a=e\0", '"a" is given twice'),
        "repeated with the same value": (b"a=b\0a=b\0", '"a" is given twice'),
        "not UTF-8": (b"a=\xff\0", "not UTF-8"),
        "cut in a letter": (b"a=\xc3\0", "not UTF-8"),
        "surrogate": (b"a=\xed\xa0\x80\0", "not UTF-8"),
        "overlong NUL": (b"a=\xc0\x80\0", "not UTF-8"),
    }.values(),
)
def test_what_breaks_the_rules_is_refused_with_its_cause(data: bytes, cause: str) -> None:
    with pytest.raises(ProtocolError, match=cause):
        read_properties(data)


def test_an_equals_sign_may_stand_in_a_value() -> None:
    assert read_properties(b"a==b=\0") == {"a": "=b="}


def test_a_refusal_shows_a_strangers_text_in_one_short_line() -> None:
    with pytest.raises(ProtocolError) as caught:
        read_properties(b"\x1b[2J\n" + b"x" * 1000 + b"\0")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 150


def test_the_bounds_are_what_may_just_be_read_and_written() -> None:
    most = {str(at): "" for at in range(PROPERTIES_MAX)}
    assert read_properties(write_properties(most)) == most
    longest = {"a": "x" * (PROPERTIES_BYTES_MAX - 3)}
    assert read_properties(write_properties(longest)) == longest


@pytest.mark.parametrize("too_much", [b"".join(b"%d=\0" % at for at in range(257)), b"\0" * 257])
def test_too_many_are_refused_when_read(too_much: bytes) -> None:
    with pytest.raises(ProtocolError, match="257 properties, which is over 256"):
        read_properties(too_much)


def test_too_long_ones_are_refused_when_read() -> None:
    with pytest.raises(ProtocolError, match="65537 bytes, which is over 65536"):
        read_properties(b"a=" + b"x" * (PROPERTIES_BYTES_MAX - 2) + b"\0")


@pytest.mark.parametrize(
    ("properties", "cause"),
    [
        ({"": "b"}, "empty key"),
        ({"a=": "b"}, 'the key "a="'),
        ({"a": "b", "c\0": "d"}, "the key"),
        ({"a": "b\0"}, 'value of property "a" has a NUL'),
        ({"a": "\ud800"}, "surrogate"),
        ({"\udfff": "a"}, "surrogate"),
        ({"a": "x" * PROPERTIES_BYTES_MAX}, "too much"),
        ({str(at): "" for at in range(PROPERTIES_MAX + 1)}, "too much"),
    ],
)
def test_what_cannot_be_encoded_is_refused_before_it_is_sent(properties: dict[str, str], cause: str) -> None:
    with pytest.raises(BrokerError, match=cause) as caught:
        write_properties(properties)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@given(properties=st.dictionaries(generated.texts, generated.texts, max_size=4))
def test_whatever_is_written_can_be_read(properties: dict[str, str]) -> None:
    try:
        data = write_properties(properties)
    except BrokerError:
        legal = all(key and "=" not in key and "\0" not in key + value for key, value in properties.items())
        assert not legal
    else:
        assert read_properties(data) == properties
