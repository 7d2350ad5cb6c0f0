"""CREATE_SUBSCRIPTION, DELETE_SUBSCRIPTION, SEEK, REDRIVE: a subscription comes, goes, and is moved.

All of them are answered when what they did is durable. Only a creation holds the requests behind it, since
those may well be about what it creates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.subscriptions import Start, Subscription, SubscriptionConfig
from tailrace.native.property import LONG_MAX, Properties, number_of, partition_of, settings_of, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.session import Session

_ACK = int(MessageType.ACK)


def create(session: Session, frame: Frame) -> None:
    config, start = definition_of(frame.properties)
    session.run("create subscription", frame.sequence, _create(session, frame, config, start), holds=True)


def delete(session: Session, frame: Frame) -> None:
    name = subscription_of(session, frame.properties).config.name
    session.run("delete subscription", frame.sequence, _delete(session, frame.sequence, name))


def seek(session: Session, frame: Frame) -> None:
    subscription = subscription_of(session, frame.properties)
    start = Start.parse(text_of(frame.properties, "_to"))
    partition = partition_of(frame.properties)
    session.run("seek", frame.sequence, _seek(frame.sequence, subscription, start, partition))


def redrive(session: Session, frame: Frame) -> None:
    subscription = subscription_of(session, frame.properties)
    count = None
    if "_count" in frame.properties:
        count = number_of(frame.properties, "_count", least=1, most=LONG_MAX)
    session.run("redrive", frame.sequence, _redrive(frame.sequence, subscription, count))


def definition_of(properties: Properties) -> tuple[SubscriptionConfig, Start]:
    """The subscription that a request defines, and where it starts."""
    name, topic = text_of(properties, "_subscription"), text_of(properties, "_topic")
    config = SubscriptionConfig.read(name, topic, settings_of(properties))
    return config, Start.parse(properties.get("_start", "earliest"))


def subscription_of(session: Session, properties: Properties) -> Subscription:
    """The subscription that a request names, which must exist."""
    return session.broker.subscriptions.known(text_of(properties, "_subscription"))


async def _create(session: Session, frame: Frame, config: SubscriptionConfig, start: Start) -> bytes:
    await session.broker.subscriptions.create(config, start)
    return write_frame(_ACK, sequence=frame.sequence)


async def _delete(session: Session, sequence: int, name: str) -> bytes:
    await session.broker.subscriptions.delete(name)
    return write_frame(_ACK, sequence=sequence)


async def _seek(sequence: int, subscription: Subscription, start: Start, partition: int | None) -> bytes:
    epoch = await subscription.seek(start, partition)
    return write_frame(_ACK, sequence=sequence, properties=b"_epoch=%d\0" % epoch)


async def _redrive(sequence: int, subscription: Subscription, count: int | None) -> bytes:
    redriven = await subscription.redrive(count)
    return write_frame(_ACK, sequence=sequence, properties=b"_count=%d\0" % redriven)
