"""Dead letters: what is written, what is read back from whatever stands in the topic, and where they go."""

from __future__ import annotations

import pytest

from tailrace.broker.subscriptions.dead_letter import find_letters, read_dead_letter, write_dead_letter
from tailrace.broker.subscriptions.delivery import Source
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord, Record, build_batch, read_batch

from .rig import Rig, play
from .test_redelivery import dead

ORDERS = Source("orders", 3, id_prefix="x-3-")
LETTERS = Source("work.dlq", 0, id_prefix="y-0-")


def record(
    *headers: tuple[str, bytes | None],
    offset: int = 7,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
) -> Record:
    (made,) = read_batch(build_batch([(1, key, value, headers)], base_offset=offset)).records()
    return made


def as_record(letter: NewRecord, offset: int = 0) -> Record:
    (made,) = read_batch(build_batch([letter], base_offset=offset)).records()
    return made


def letter_of(message: Record, source: Source = ORDERS, reason: str = "no") -> Record:
    return as_record(
        write_dead_letter(message, source, subscription="work", reason=reason, deliveries=5, now_ms=99)
    )


def test_a_dead_letter_holds_the_message_and_its_story() -> None:
    letter = letter_of(record(("colour", b"red"), ("size", None)))
    assert (letter.key, letter.value, letter.timestamp) == (b"k", b"v", 99)
    assert list(letter.headers) == [
        ("colour", b"red"),
        ("size", None),
        ("_dlq_subscription", b"work"),
        ("_dlq_topic", b"orders"),
        ("_dlq_partition", b"3"),
        ("_dlq_offset", b"7"),
        ("_dlq_reason", b"no"),
        ("_dlq_deliveries", b"5"),
        ("_dlq_time", b"99"),
    ]
    assert read_dead_letter(letter) == {
        "origin": {"topic": "orders", "partition": 3, "offset": 7},
        "reason": "no",
        "delivery_count": 5,
        "deliveries": 5,
    }


def test_a_message_without_key_or_value_stays_so() -> None:
    letter = letter_of(record(key=None, value=None))
    assert letter.key is None and letter.value is None


def test_a_redriven_message_keeps_its_first_origin_and_gets_a_new_reason() -> None:
    first = letter_of(record(("colour", b"red")), reason="one")
    second = letter_of(first, LETTERS, reason="two")
    assert [name for name, _ in second.headers] == [name for name, _ in first.headers]
    shown = read_dead_letter(second)
    assert shown["origin"] == {"topic": "orders", "partition": 3, "offset": 7} and shown["reason"] == "two"


def test_a_long_or_odd_reason_is_cut_not_refused() -> None:
    headers = dict(letter_of(record(), reason="x" * 5_000).headers)
    assert headers["_dlq_reason"] == b"x" * 1_024
    assert dict(letter_of(record(), reason="a\udc80b").headers)["_dlq_reason"] == b"a?b"


@pytest.mark.parametrize(
    ("headers", "origin", "deliveries"),
    [
        ((), {"topic": "", "partition": "", "offset": ""}, ""),
        ((("_dlq_offset", b"many"),), {"topic": "", "partition": "", "offset": "many"}, ""),
        ((("_dlq_offset", b"9" * 50),), {"topic": "", "partition": "", "offset": "9" * 50}, ""),
        ((("_dlq_offset", None), ("_dlq_topic", b"\xff")), {"topic": "�", "partition": "", "offset": ""}, ""),
        ((("_dlq_deliveries", b"-1"),), {"topic": "", "partition": "", "offset": ""}, "-1"),
    ],
)
def test_what_others_wrote_is_shown_as_far_as_it_makes_sense(
    headers: tuple[tuple[str, bytes | None], ...], origin: dict[str, object], deliveries: object
) -> None:
    shown = read_dead_letter(record(*headers))
    assert (shown["origin"], shown["deliveries"]) == (origin, deliveries)


def test_a_topic_that_cannot_be_made_is_an_error() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(BrokerError) as refused:
            await rig.broker.subscriptions._dead_letters.ensure("no/such")
        assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


def test_letters_are_counted_without_the_markers_between_them() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("work.dlq", partitions=2, message_timestamp_type="LogAppendTime")
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        for number in range(3):
            await rig.publish(b"a", b"b")
            await rig.wait_until(lambda: ann.has(2))
            ann.nack(*ann.offsets)
            ann.take()
            await dead(rig, work, 2 * number + 2)
        letters = rig.partition(topic="work.dlq")
        assert letters.high_watermark == 9, "two letters and a marker, three times"
        found = [await find_letters(letters, 0, count) for count in (1, 2, 3, 6, 7, None)]
        assert found == [(1, 1), (2, 2), (4, 3), (8, 6), (9, 6), (9, 6)]
        assert await find_letters(letters, 8, None) == (9, 0)
        assert rig.partition(1, "work.dlq").high_watermark == 0

    play(scenario)
