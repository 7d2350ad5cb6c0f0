"""SUBSCRIBE, UNSUBSCRIBE, CREDIT, PULL: a client becomes a member, says how much it takes, and leaves.

SUBSCRIBE with `_topic` makes the subscription if there is none. One that exists is joined as it is; where the
request names a topic or settings, they must be its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.subscriptions import Start, Subscription, SubscriptionConfig
from tailrace.native.handlers.subscription import definition_of, subscription_of
from tailrace.native.property import Properties, number_of, refusal, settings_of, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.session import Session

_ACK = int(MessageType.ACK)


def subscribe(session: Session, frame: Frame) -> None:
    properties = frame.properties
    config = session.config
    credit = number_of(properties, "_credit", least=0, most=config.credit_max, default=config.credit_default)
    if "_topic" in properties and not _exists_as_asked(session, properties):
        wanted, start = definition_of(properties)
        work = _create_and_join(session, frame.sequence, wanted, start, credit)
        session.run("subscribe", frame.sequence, work, holds=True)
        return
    subscription = subscription_of(session, properties)
    session.membership.receive(subscription, credit=credit)
    session.reply(frame, _joined(subscription))


def unsubscribe(session: Session, frame: Frame) -> None:
    session.membership.leave(text_of(frame.properties, "_subscription"))
    session.reply(frame)


def credit(session: Session, frame: Frame) -> None:
    """Never answered; what makes no sense changes nothing."""
    name = text_of(frame.properties, "_subscription")
    session.membership.set_credit(
        name, number_of(frame.properties, "_credit", least=0, most=session.config.credit_max)
    )


def pull(session: Session, frame: Frame) -> None:
    properties, config = frame.properties, session.config
    if not frame.sequence:
        raise refusal("a PULL needs a sequence above 0")
    subscription = subscription_of(session, properties)
    count = number_of(properties, "_count", least=1, most=config.pull_count_max)
    wait_ms = number_of(properties, "_wait_ms", least=0, most=config.pull_wait_ms_max, default=0)
    session.membership.puller(subscription).pull(frame.sequence, count, wait_ms=wait_ms)


def _exists_as_asked(session: Session, properties: Properties) -> bool:
    """Whether the subscription is there, of this topic, and nothing else was said of it."""
    found = session.broker.subscriptions.get(text_of(properties, "_subscription"))
    return found is not None and found.config.topic == properties["_topic"] and not settings_of(properties)


async def _create_and_join(
    session: Session, sequence: int, config: SubscriptionConfig, start: Start, credit: int
) -> bytes:
    subscription = await session.broker.subscriptions.create(config, start)
    if not session.is_closed:
        session.membership.receive(subscription, credit=credit)
    return write_frame(_ACK, sequence=sequence, properties=_joined(subscription))


def _joined(subscription: Subscription) -> bytes:
    return b"_ack_timeout_ms=%d\0" % subscription.config.ack_timeout_ms
