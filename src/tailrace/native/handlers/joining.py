"""SUBSCRIBE, UNSUBSCRIBE, CREDIT, PULL: a client becomes a member, says how much it takes, and leaves.

SUBSCRIBE with `_topic` makes the subscription if there is none. One that exists is joined as it is; where the
request names a topic or settings, they must be its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.definition import Start, SubscriptionConfig
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.model.operation import Operation
from tailrace.native.handlers.subscription import definition_of, subscription_of
from tailrace.native.property import Properties, number_of, refusal, settings_of, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)


def subscribe(protocol: NativeProtocol, frame: Frame) -> None:
    properties = frame.properties
    config = protocol.config
    credit = number_of(properties, "_credit", least=0, most=config.credit_max, default=config.credit_default)
    if "_topic" in properties and not _exists_as_asked(protocol, properties):
        wanted, start = definition_of(properties)
        work = _create_and_join(protocol, frame.sequence, wanted, start, credit)
        protocol.run("subscribe", frame.sequence, work, holds=True)
        return
    subscription = subscription_of(protocol, properties)
    protocol.membership.receive(subscription, credit=credit)
    protocol.reply(frame, _joined(subscription))


def unsubscribe(protocol: NativeProtocol, frame: Frame) -> None:
    protocol.membership.leave(text_of(frame.properties, "_subscription"))
    protocol.reply(frame)


def credit(protocol: NativeProtocol, frame: Frame) -> None:
    """Never answered; what makes no sense changes nothing."""
    name = text_of(frame.properties, "_subscription")
    protocol.membership.set_credit(
        name, number_of(frame.properties, "_credit", least=0, most=protocol.config.credit_max)
    )


def pull(protocol: NativeProtocol, frame: Frame) -> None:
    properties, config = frame.properties, protocol.config
    if not frame.sequence:
        raise refusal("a PULL needs a sequence above 0")
    subscription = subscription_of(protocol, properties)
    count = number_of(properties, "_count", least=1, most=config.pull_count_max)
    wait_ms = number_of(properties, "_wait_ms", least=0, most=config.pull_wait_ms_max, default=0)
    protocol.membership.puller(subscription).pull(frame.sequence, count, wait_ms=wait_ms)


def _exists_as_asked(protocol: NativeProtocol, properties: Properties) -> bool:
    """Whether the subscription is there, of this topic, and nothing else was said of it."""
    found = protocol.access.find_subscription(text_of(properties, "_subscription"), Operation.READ)
    return found is not None and found.config.topic == properties["_topic"] and not settings_of(properties)


async def _create_and_join(
    protocol: NativeProtocol, sequence: int, config: SubscriptionConfig, start: Start, credit: int
) -> bytes:
    subscription = await protocol.access.create_subscription(config, start)
    if not protocol.is_closed:
        protocol.membership.receive(subscription, credit=credit)
    return write_frame(_ACK, sequence=sequence, properties=_joined(subscription))


def _joined(subscription: Subscription) -> bytes:
    return b"_ack_timeout_ms=%d\0" % subscription.config.ack_timeout_ms
