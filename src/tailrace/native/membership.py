"""The subscriptions that one client is a member of: pushed to, pulling, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.delivery import Notice
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.native.delivery import Receiver, write_notice
from tailrace.native.pulling import Puller

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.member import Member
    from tailrace.broker.subscriptions.subscription import Subscription
    from tailrace.native.protocol import NativeProtocol


class Membership:
    """At most one receiver and one puller for every subscription."""

    __slots__ = ("_protocol", "_pullers", "_receivers")

    def __init__(self, protocol: NativeProtocol) -> None:
        self._protocol = protocol
        self._receivers: dict[str, Receiver] = {}
        self._pullers: dict[str, Puller] = {}

    def receives(self, name: str) -> bool:
        """Whether the client is pushed the messages of this subscription."""
        return name in self._receivers

    def members(self, name: str) -> list[Member]:
        """What the client is in a subscription: nothing, one member or two."""
        found = (self._receivers.get(name), self._pullers.get(name))
        return [each.member for each in found if each is not None]

    def receive(self, subscription: Subscription, *, credit: int) -> None:
        """Join, or go on with another credit."""
        name = subscription.config.name
        known = self._receivers.get(name)
        if known is not None and known.subscription is subscription:
            known.member.set_credit(credit)
            return
        self._check_room()
        self._receivers[name] = Receiver(self._protocol, subscription, credit=credit)

    def set_credit(self, name: str, credit: int) -> None:
        """A receiver's new credit; who is none has nothing to change."""
        known = self._receivers.get(name)
        if known is None:
            raise _no_member(name)
        known.member.set_credit(credit)

    def puller(self, subscription: Subscription) -> Puller:
        """The client as one who pulls; it joins with its first pull."""
        name = subscription.config.name
        known = self._pullers.get(name)
        if known is None or known.subscription is not subscription:
            self._check_room()
            known = self._pullers[name] = Puller(self._protocol, subscription)
        return known

    def leave(self, name: str, *, failed: bool = False) -> None:
        """What the client holds goes back at once; its pulls are answered.

        One that is lost, or broke the protocol, has failed with what it holds; one that says goodbye has not.
        """
        receiver, puller = self._receivers.pop(name, None), self._pullers.pop(name, None)
        if receiver is None and puller is None:
            raise _no_member(name)
        if receiver is not None:
            receiver.member.leave(failed=failed)
        if puller is not None:
            puller.end_all()
            puller.member.leave(failed=failed)

    def leave_all(self, *, failed: bool) -> None:
        for name in {*self._receivers, *self._pullers}:
            self.leave(name, failed=failed)

    def forget(self, subscription: Subscription) -> None:
        """The subscription is gone."""
        name = subscription.config.name
        if name in self._receivers and self._receivers[name].subscription is subscription:
            del self._receivers[name]
        if name in self._pullers and self._pullers[name].subscription is subscription:
            self._pullers.pop(name).end_all()

    def ask_again(self, subscription: Subscription) -> bool:
        """Whether the client may still read this subscription; else it is told, and is a member no more.

        Asked when a topic or a right has changed. What the client holds goes to other members.
        """
        name = subscription.config.name
        try:
            self._protocol.access.subscription(name, Operation.READ)
        except BrokerError as error:
            self._protocol.outlet.send(write_notice(name, Notice(event="revoked", reason=str(error))))
            self.leave(name)
            return False
        return True

    def resume(self) -> None:
        """The client reads again: its subscriptions may deliver."""
        for receiver in list(self._receivers.values()):
            receiver.member.resume()
        for puller in list(self._pullers.values()):
            puller.member.resume()

    def _check_room(self) -> None:
        most = self._protocol.config.subscriptions_max
        if len(self._receivers) + len(self._pullers) >= most:
            raise BrokerError(
                f"this connection is in {most} subscriptions, which is what one may be in. Open another one",
                code=ErrorCode.POLICY_VIOLATION,
            )


def _no_member(name: str) -> BrokerError:
    return BrokerError(
        f"this connection is not in subscription {name[:249]!r}. Send SUBSCRIBE first",
        code=ErrorCode.UNKNOWN_MEMBER_ID,
    )
