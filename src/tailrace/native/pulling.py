"""PULL: messages that a client asks for, as DATA frames, and the ACK that ends each request.

When a pull ends is the rule of `broker.subscriptions.pulling`; its ACK counts the messages that it has got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.pulling import Pull, Pulls
from tailrace.native.delivery import DataWriter, write_notice
from tailrace.wire.native import MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.delivery import Delivery, Notice
    from tailrace.broker.subscriptions.member import Member
    from tailrace.broker.subscriptions.subscription import Subscription
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)


class _Asked(Pull):
    """One PULL."""

    __slots__ = ("sequence",)

    def __init__(self, sequence: int, wanted: int) -> None:
        super().__init__(wanted)
        self.sequence = sequence


class Puller:
    """A client as a member that pulls (`broker.subscriptions.Recipient`)."""

    __slots__ = ("_protocol", "_pulls", "_version", "_writer", "subscription")

    def __init__(self, protocol: NativeProtocol, subscription: Subscription) -> None:
        self._protocol = protocol
        self._version = protocol.access.version  # of the gate, when the right to read was last asked for
        self._writer = DataWriter(subscription.config.name)
        self.subscription = subscription
        self._pulls: Pulls[_Asked] = Pulls(
            subscription, self, patience_s=protocol.config.request_timeout_s, on_end=self._answer
        )

    @property
    def member(self) -> Member:
        return self._pulls.member

    def pull(self, sequence: int, count: int, *, wait_ms: int) -> None:
        """Ask for messages; DATA frames and an ACK answer."""
        self._protocol.asked()
        self._pulls.ask(_Asked(sequence, count), wait_ms=wait_ms)

    def end_all(self) -> None:
        """Answer every pull with what it has got."""
        self._pulls.end_all()

    # ---- the subscription's side

    @property
    def name(self) -> str:
        return self._protocol.name

    def is_open(self) -> bool:
        return self._protocol.outlet.is_open()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Share messages out among the pulls."""
        version = self._protocol.access.version
        if version != self._version:
            self._version = version
            if not self._protocol.membership.ask_again(self.subscription):
                return
        try:
            self._send(deliveries)
        except Exception as error:
            self._protocol.outlet.failed(error)  # and the subscription goes on with the others

    def notice(self, notice: Notice) -> None:
        """Tell the client, unless it is told as a receiver; a subscription that is gone answers no more."""
        membership = self._protocol.membership
        name = self.subscription.config.name
        if not membership.receives(name):
            self._protocol.outlet.send(write_notice(name, notice))
        if notice.event == "deleted":
            membership.forget(self.subscription)

    # ---- inside

    def _send(self, deliveries: Sequence[Delivery]) -> None:
        write = self._writer.write
        shares = self._pulls.share_out(deliveries)
        self._protocol.outlet.send(
            b"".join(
                [
                    # One that was on its way for too long: the client may still make use of it.
                    write(delivery) if pull is None else write(delivery, pull=pull.sequence)
                    for delivery, pull in zip(deliveries, shares, strict=True)
                ]
            )
        )
        self._pulls.settle()

    def _answer(self, pull: _Asked) -> None:
        protocol = self._protocol
        protocol.unanswered -= 1
        if not protocol.is_closed:
            properties = b"_count=%d\0" % pull.got
            protocol.outlet.send(write_frame(_ACK, sequence=pull.sequence, properties=properties))
        protocol.outlet.settled()
