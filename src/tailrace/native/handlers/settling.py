"""ACK, NACK, EXTEND: what becomes of messages that were delivered.

An acknowledgement counts whoever sends it: a client that lost its connection in mid-work may acknowledge on
the next one, before it joins or without joining. It is answered when it is durable. NACK and EXTEND count for
what this client holds, pushed or pulled, and are answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.native.handlers.subscription import subscription_of
from tailrace.native.property import LONG_MAX, PARTITION_MAX, Properties, number_of, text_of
from tailrace.native.waits import AckWait
from tailrace.wire.native import Frame, read_offsets

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_DELAY_MS_MAX = 7 * 24 * 3_600_000
_REASON_LENGTH_MAX = 1_000


class Settled(NamedTuple):
    """The messages that a request is about."""

    topic: str  # "": the subscription's own
    partition: int
    epoch: int
    ranges: list[tuple[int, int]]


def ack(protocol: NativeProtocol, frame: Frame) -> None:
    subscription = subscription_of(protocol, frame.properties)
    settled = read_settled(frame.properties)
    wait = AckWait(protocol, frame.sequence)
    wait.settled = subscription.ack(*settled, wait)
    protocol.asked()
    protocol.wait_for(wait)


def nack(protocol: NativeProtocol, frame: Frame) -> None:
    properties = frame.properties
    name = subscription_of(protocol, properties).config.name
    settled = read_settled(properties)
    delay_ms = None
    if "_delay_ms" in properties:
        delay_ms = number_of(properties, "_delay_ms", least=0, most=_DELAY_MS_MAX)
    reason = properties.get("_reason", "")[:_REASON_LENGTH_MAX]
    members = protocol.membership.members(name)
    count = sum(member.nack(*settled, delay_ms=delay_ms, reason=reason) for member in members)
    protocol.reply(frame, b"_count=%d\0" % count)


def extend(protocol: NativeProtocol, frame: Frame) -> None:
    properties = frame.properties
    name = subscription_of(protocol, properties).config.name
    settled = read_settled(properties)
    extend_ms = number_of(properties, "_extend_ms", least=1, most=_DELAY_MS_MAX)
    members = protocol.membership.members(name)
    count = sum(member.extend(*settled, extend_ms=extend_ms) for member in members)
    protocol.reply(frame, b"_count=%d\0" % count)


def read_settled(properties: Properties) -> Settled:
    """The messages that an ACK, NACK or EXTEND is about, or an acknowledgement in a TXN_COMMIT."""
    return Settled(
        properties.get("_topic", ""),
        number_of(properties, "_partition", least=0, most=PARTITION_MAX),
        number_of(properties, "_epoch", least=0, most=LONG_MAX),
        read_offsets(text_of(properties, "_offsets")),
    )
