"""Messages pushed to a client: deliveries of a subscription as DATA frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.wire.native import MessageType, write_data, write_data_prefix, write_frame

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.delivery import Delivery, Notice, Source
    from tailrace.broker.subscriptions.member import Member
    from tailrace.broker.subscriptions.subscription import Subscription
    from tailrace.native.protocol import NativeProtocol

_NOTICE = int(MessageType.NOTICE)


class DataWriter:
    """Writes the deliveries of one subscription; what they have in common is encoded once."""

    __slots__ = ("_prefixes", "_subscription")

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._prefixes: dict[Source, tuple[int, bytes]] = {}  # one for every partition, with its epoch

    def write(self, delivery: Delivery, *, pull: int | None = None) -> bytes:
        """The frame of one delivery."""
        source, epoch = delivery.source, delivery.epoch
        offset, timestamp, key, value, headers = delivery.record
        known = self._prefixes.get(source)
        if known is None or known[0] != epoch:
            prefix = write_data_prefix(
                subscription=self._subscription, topic=source.topic, partition=source.partition, epoch=epoch
            )
            known = self._prefixes[source] = epoch, prefix
        return write_data(
            known[1],
            offset=offset,
            timestamp=timestamp,
            count=delivery.count,
            id_prefix=source.id_prefix,
            key=key,
            value=value,
            headers=headers,
            pull=pull,
        )


class Receiver:
    """A client as a member that is pushed messages (`broker.subscriptions.Recipient`)."""

    __slots__ = ("_protocol", "_version", "_writer", "is_open", "member", "subscription")

    member: Member

    def __init__(self, protocol: NativeProtocol, subscription: Subscription, *, credit: int) -> None:
        self._protocol = protocol
        self._version = protocol.access.version  # of the gate, when the right to read was last asked for
        self._writer = DataWriter(subscription.config.name)
        self.is_open = protocol.outlet.is_open  # asked for each message: not by way of a method of our own
        self.subscription = subscription
        self.member = subscription.join(self, credit=credit)

    @property
    def name(self) -> str:
        return self._protocol.name

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Everything that was chosen for this client in one turn leaves in one piece."""
        version = self._protocol.access.version
        if version != self._version:
            self._version = version
            if not self._protocol.membership.ask_again(self.subscription):
                return
        write = self._writer.write
        try:
            self._protocol.outlet.send(b"".join([write(delivery) for delivery in deliveries]))
        except Exception as error:
            self._protocol.outlet.failed(error)  # and the subscription goes on with the others

    def notice(self, notice: Notice) -> None:
        """Tell the client; a subscription that is gone has no members any more."""
        name = self.subscription.config.name
        self._protocol.outlet.send(write_notice(name, notice))
        if notice.event == "deleted":
            self._protocol.membership.forget(self.subscription)


def write_notice(subscription: str, notice: Notice) -> bytes:
    """The NOTICE frame; what says nothing is left out."""
    properties = {"_subscription": subscription, "_event": notice.event}
    if notice.partition >= 0:
        properties["_partition"] = str(notice.partition)
    if notice.count:
        properties["_count"] = str(notice.count)
    if notice.reason:
        properties["_reason"] = notice.reason.replace("\0", " ")
    return write_frame(_NOTICE, properties=properties)
