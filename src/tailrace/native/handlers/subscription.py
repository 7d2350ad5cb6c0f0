"""CREATE_SUBSCRIPTION, DELETE_SUBSCRIPTION, REPLAY, REDRIVE: a subscription comes, goes, and is moved.

All of them are answered when what they did is durable. Only a creation holds the requests behind it, since
those may well be about what it creates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.definition import Start, SubscriptionConfig
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.model.operation import Operation
from tailrace.native.property import LONG_MAX, Properties, number_of, partition_of, settings_of, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)


def create(protocol: NativeProtocol, frame: Frame) -> None:
    config, start = definition_of(frame.properties)
    protocol.run("create subscription", frame.sequence, _create(protocol, frame, config, start), holds=True)


def delete(protocol: NativeProtocol, frame: Frame) -> None:
    name = subscription_of(protocol, frame.properties, Operation.DELETE).config.name
    protocol.run("delete subscription", frame.sequence, _delete(protocol, frame.sequence, name))


def replay(protocol: NativeProtocol, frame: Frame) -> None:
    subscription = subscription_of(protocol, frame.properties, Operation.ALTER)
    start = Start.parse(text_of(frame.properties, "_to"))
    partition = partition_of(frame.properties)
    protocol.run("replay", frame.sequence, _replay(protocol, frame.sequence, subscription, start, partition))


def redrive(protocol: NativeProtocol, frame: Frame) -> None:
    name = text_of(frame.properties, "_subscription")
    count = None
    if "_count" in frame.properties:
        count = number_of(frame.properties, "_count", least=1, most=LONG_MAX)
    protocol.run("redrive", frame.sequence, _redrive(protocol, frame.sequence, name, count))


def definition_of(properties: Properties) -> tuple[SubscriptionConfig, Start]:
    """The subscription that a request defines, and where it starts."""
    name, topic = text_of(properties, "_subscription"), text_of(properties, "_topic")
    config = SubscriptionConfig.read(name, topic, settings_of(properties))
    return config, Start.parse(properties.get("_start", "earliest"))


def subscription_of(
    protocol: NativeProtocol, properties: Properties, operation: Operation = Operation.READ
) -> Subscription:
    """The subscription that a request names, which must exist; READ is taking and settling its messages."""
    return protocol.access.subscription(text_of(properties, "_subscription"), operation)


async def _create(protocol: NativeProtocol, frame: Frame, config: SubscriptionConfig, start: Start) -> bytes:
    await protocol.access.create_subscription(config, start)
    return write_frame(_ACK, sequence=frame.sequence)


async def _delete(protocol: NativeProtocol, sequence: int, name: str) -> bytes:
    await protocol.access.delete_subscription(name)
    return write_frame(_ACK, sequence=sequence)


async def _replay(
    protocol: NativeProtocol,
    sequence: int,
    subscription: Subscription,
    start: Start,
    partition: int | None,
) -> bytes:
    with protocol.access.changing("subscription.replay", f"subscription {subscription.config.name!r}"):
        epoch = await subscription.seek(start, partition)
    return write_frame(_ACK, sequence=sequence, properties=b"_epoch=%d\0" % epoch)


async def _redrive(protocol: NativeProtocol, sequence: int, name: str, count: int | None) -> bytes:
    redriven = await protocol.access.redrive(name, count)
    return write_frame(_ACK, sequence=sequence, properties=b"_count=%d\0" % redriven)
