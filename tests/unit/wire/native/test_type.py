"""Numbers of the native messages: they are part of the protocol, and never change."""

from __future__ import annotations

from tailrace.wire.native import MessageType, type_name

FIRST = (
    "CREATE_TOPIC PUBLISH CREATE_SUBSCRIPTION DELETE_SUBSCRIPTION SUBSCRIBE UNSUBSCRIBE HEARTBEAT ACK DATA"
)
LATER = (
    "NACK PULL REPLAY CREDIT AUTH ERROR PUBLISH_BATCH EXTEND DESCRIBE REDRIVE NOTICE "
    "TXN_BEGIN TXN_COMMIT TXN_ABORT"
)


def test_the_first_types_are_1_to_9_and_the_others_begin_at_32() -> None:
    numbers = [*enumerate(FIRST.split(), 1), *enumerate(LATER.split(), 32)]
    assert [(int(member), member.name) for member in MessageType] == numbers


def test_a_type_has_a_name_for_people_even_if_nobody_knows_it() -> None:
    assert type_name(38) == "PUBLISH_BATCH"
    assert type_name(77) == "type 77"
