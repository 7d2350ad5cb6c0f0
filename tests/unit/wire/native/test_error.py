"""ERROR frames: round trips, codes from the future, and texts that are too long or no text."""

from __future__ import annotations

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.native import ErrorReply, Frame, MessageType, read_error, read_frame, write_error


@pytest.mark.parametrize("retriable", [True, False])
def test_an_error_comes_back(retriable: bool) -> None:
    whole = write_error(7, code=ErrorCode.INVALID_CONFIG, message="größe", retriable=retriable)
    frame = read_frame(whole[4:])
    assert (frame.type, frame.sequence) == (MessageType.ERROR, 7)
    assert frame.properties == {"_code": "INVALID_CONFIG", "_retriable": "1" if retriable else "0"}
    assert read_error(frame) == ErrorReply(ErrorCode.INVALID_CONFIG, retriable, "größe")


def test_a_code_that_nobody_knows_keeps_its_name_in_the_text() -> None:
    frame = Frame(37, 1, 0, {"_code": "OUT_OF_COFFEE", "_retriable": "1"}, b"brew some")
    assert read_error(frame) == ErrorReply(ErrorCode.UNKNOWN_SERVER_ERROR, True, "OUT_OF_COFFEE: brew some")


def test_an_error_without_properties_or_text_is_still_one() -> None:
    assert read_error(Frame(37, 0, 0, {}, b"")) == ErrorReply(ErrorCode.UNKNOWN_SERVER_ERROR, False, "")


def test_a_text_is_shown_even_if_it_is_none() -> None:
    assert read_error(Frame(37, 0, 0, {}, memoryview(b"a\xff"))).message == "a\ufffd"


def test_a_long_text_is_cut_between_letters() -> None:
    frame = read_frame(write_error(1, code=ErrorCode.INVALID_REQUEST, message="ä" * 100_000)[4:])
    assert set(str(frame.body, "utf-8")) == {"ä"} and len(frame.body) < 10_000


def test_a_text_that_utf8_cannot_express_is_written_out() -> None:
    frame = read_frame(write_error(1, code=ErrorCode.INVALID_REQUEST, message="a\ud800")[4:])
    assert read_error(frame).message == "a\\ud800"
