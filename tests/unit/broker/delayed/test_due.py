"""The properties that delay a message: what they mean, and nonsense in them."""

from __future__ import annotations

import pytest

from tailrace.broker.delayed.due import read_due_ms, without_delay
from tailrace.model import BrokerError, ErrorCode

NOW = 1_750_000_000_000
DAY = 24 * 3_600_000


@pytest.mark.parametrize(
    ("name", "value", "due_ms"),
    [
        ("delay_ms", b"1", NOW + 1),
        ("delay_ms", b"0005000", NOW + 5000),
        ("delay_ms", b"%d" % (366 * DAY), NOW + 366 * DAY),
        ("deliver_at", b"%d" % (NOW + 1), NOW + 1),
        ("delay_ms", b"0", None),
        ("deliver_at", b"%d" % NOW, None),
        ("deliver_at", b"0", None),
        ("other", b"17", None),
        ("Deliver_At", b"17", None),
    ],
)
def test_when_a_message_is_due(name: str, value: bytes, due_ms: int | None) -> None:
    assert read_due_ms([("a", b"b"), (name, value), ("c", None)], now_ms=NOW) == due_ms


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"-1",
        b"+5",
        b"1.5",
        b"1e3",
        b" 5",
        b"5 ",
        b"0x10",
        b"soon",
        b"\xff",
        "٣".encode(),
        b"9" * 16,
    ],
)
@pytest.mark.parametrize("name", ["delay_ms", "deliver_at"])
def test_nonsense_is_refused(name: str, value: bytes | None) -> None:
    with pytest.raises(BrokerError, match=name) as caught:
        read_due_ms([(name, value)], now_ms=NOW)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delay_ms", b"%d" % (366 * DAY + 1)),
        ("deliver_at", b"%d" % (NOW + 366 * DAY + 1)),
        ("deliver_at", b"%d" % (NOW * 100)),
    ],
)
def test_more_than_a_year_ahead_is_refused(name: str, value: bytes) -> None:
    with pytest.raises(BrokerError, match="366 days") as caught:
        read_due_ms([(name, value)], now_ms=NOW)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("second", ["delay_ms", "deliver_at"])
def test_a_time_said_twice_is_refused(second: str) -> None:
    with pytest.raises(BrokerError, match="once") as caught:
        read_due_ms([("delay_ms", b"5"), (second, b"6")], now_ms=NOW)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_other_headers_are_delivered_as_they_are() -> None:
    headers = [("a", b"1"), ("delay_ms", b"5"), ("a", None), ("deliver_at", b"6"), ("b", b"")]
    assert without_delay(headers) == [("a", b"1"), ("a", None), ("b", b"")]
