"""The subscriptions that a client has joined, and what the broker sends them.

A subscription is joined as soon as there is a connection, and again on every new one. A broker that does not
take us back at once may still see our old connection, as an exclusive subscription does: we ask again, unless
its answer cannot change by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.client.error import ConnectionLost, TimedOut
from tailrace.client.native.connection import Connection, Failure
from tailrace.client.native.error import error_of, number_of
from tailrace.client.native.link import Link
from tailrace.client.native.settlement import Settlements
from tailrace.client.native.subscription import AsyncSubscription
from tailrace.model import BrokerError, ConfigError, ErrorCode, TailraceError
from tailrace.security.decryption import DecryptionFailed
from tailrace.wire.native import Frame, MessageType

_log = logging.getLogger(__name__)

_ERROR = int(MessageType.ERROR)
_REJOIN_DELAY_S = 0.5
_FINAL = frozenset(
    {
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

_REPLAYED = ("seek", "replay")  # older name, and the one of the next release

# It was deleted meanwhile, or this is another connection than the one that was a member.
_NO_MEMBERSHIP = frozenset({ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a broker tells about a subscription: skipped, paused, resumed, seek, deleted or revoked.

    The broker calls a replay `seek` in this release, and `replay` from the next one on.
    """

    subscription: str
    event: str
    partition: int  # -1: all of them
    count: int
    reason: str


class _Join:
    """Waits for the reply to a SUBSCRIBE."""

    __slots__ = ("_owner", "_subscription")

    def __init__(self, owner: Subscriptions, subscription: AsyncSubscription) -> None:
        self._owner = owner
        self._subscription = subscription

    def answered(self, frame: Frame) -> None:
        self._owner.answered(self._subscription, frame)

    def delivered(self, frame: Frame) -> None:
        """Messages of a subscription are pushed, and answer no request."""

    def lost(self, error: Failure) -> None:
        """The next connection brings another attempt."""


class _Leave:
    """Waits for the reply to an UNSUBSCRIBE that changes nothing any more."""

    __slots__ = ()

    def answered(self, frame: Frame) -> None:
        """We have left, or were no member."""

    def delivered(self, frame: Frame) -> None:
        """Nothing is delivered for it."""

    def lost(self, error: Failure) -> None:
        """The end of the connection has ended the membership."""


class Subscriptions:
    """All of one client."""

    def __init__(
        self, link: Link, settlements: Settlements, *, on_notice: Callable[[Notice], None] | None
    ) -> None:
        self._link = link
        self._settlements = settlements
        self._on_notice = on_notice
        self._connection: Connection | None = None
        self._by_name: dict[str, AsyncSubscription] = {}

    def get(self, name: str) -> AsyncSubscription | None:
        """The one of this name, if it is joined."""
        return self._by_name.get(name)

    async def join(self, subscription: AsyncSubscription) -> None:
        """Join, and wait until the broker has taken us in."""
        name = subscription.name
        if name in self._by_name:
            raise ConfigError(
                f"this client has joined {name} already. Leave it first, or join with another client"
            )
        self._by_name[name] = subscription
        seconds = self._link.request_timeout_s
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                if self._connection is not None:
                    self._send_join(subscription)
                else:
                    await self._link.wait_connected()  # which joins whatever is registered
                await subscription.first_join
        except BaseException as error:
            self._by_name.pop(name, None)
            subscription.end(None)
            if deadline.expired() and isinstance(error, TimeoutError):
                raise TimedOut(
                    f"{self._link.address} did not let us join {name} within {seconds:g} s"
                ) from error
            raise

    async def leave(self, subscription: AsyncSubscription) -> None:
        """End it: handlers, then acknowledgements, then the membership."""
        if self._by_name.get(subscription.name) is not subscription:
            return
        subscription.end(None)
        try:
            await subscription.wait_workers(self._link.request_timeout_s)
            await self._settlements.drain(self._link.request_timeout_s)
        finally:
            self._by_name.pop(subscription.name, None)
        if self._connection is not None and not self._connection.closed:
            await self._unsubscribe(subscription.name)

    async def _unsubscribe(self, name: str) -> None:
        try:
            await self._link.request(MessageType.UNSUBSCRIBE, {"_subscription": name}, repeat=False)
        except ConnectionLost as error:
            _log.debug("the lost connection has ended the membership in %s: %s", name, error)
        except BrokerError as error:
            if error.code not in _NO_MEMBERSHIP:
                raise

    async def leave_all(self) -> None:
        """End every subscription, as the client is about to close; the broker sees that by itself."""
        everything = list(self._by_name.values())
        self._by_name = {}
        for subscription in everything:
            subscription.end(None)
        for subscription in everything:
            await subscription.wait_workers(self._link.request_timeout_s)

    def set_prefetch(self, subscription: AsyncSubscription, prefetch: int) -> None:
        """Change how many messages may be unsettled here; 0 pauses."""
        subscription.prefetch = prefetch
        if self._connection is not None and not self._connection.closed:
            properties = {"_subscription": subscription.name, "_credit": str(prefetch)}
            self._connection.send(MessageType.CREDIT, properties)

    # ---- what the broker tells

    def delivered(self, frame: Frame) -> None:
        subscription = self._by_name.get(frame.properties.get("_subscription", ""))
        if subscription is None:
            return  # we have just left it, and what was under way goes back
        try:
            subscription.deliver(frame)
        except DecryptionFailed as error:
            self._drop(subscription, error)
            self._send_leave(subscription.name)

    def _send_leave(self, name: str) -> None:
        """Tell the broker, without waiting for its answer; what was delivered goes back."""
        if self._connection is not None and not self._connection.closed:
            self._connection.send(MessageType.UNSUBSCRIBE, {"_subscription": name}, awaiting=_Leave())

    def noticed(self, frame: Frame) -> None:
        properties = frame.properties
        notice = Notice(
            subscription=properties.get("_subscription", ""),
            event=properties.get("_event", ""),
            partition=number_of(frame, "_partition", -1),
            count=number_of(frame, "_count", 0),
            reason=properties.get("_reason", ""),
        )
        level = logging.WARNING if notice.event in ("skipped", "deleted", "revoked") else logging.INFO
        _log.log(level, "subscription %s: %s %s", notice.subscription, notice.event, notice.reason)
        subscription = self._by_name.get(notice.subscription)
        if subscription is not None and notice.event in _REPLAYED:
            subscription.forget()  # acknowledgements of the old epoch count for nothing
        elif subscription is not None and notice.event == "deleted":
            self._drop(
                subscription,
                BrokerError(
                    f"the subscription {subscription.name} was deleted", code=ErrorCode.RESOURCE_NOT_FOUND
                ),
            )
        elif subscription is not None and notice.event == "revoked":
            self._drop(subscription, BrokerError(notice.reason, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        if self._on_notice is not None:
            self._on_notice(notice)

    def answered(self, subscription: AsyncSubscription, frame: Frame) -> None:
        """The reply to a SUBSCRIBE."""
        if subscription.ended.is_set():
            return
        if frame.type != _ERROR:
            subscription.joined(frame)
            return
        error = error_of(frame)
        first = not subscription.first_join.done()
        if error.code in _FINAL or (first and not error.retriable):
            self._drop(subscription, error)
            return
        _log.warning("cannot join %s yet, trying again: %s", subscription.name, error)
        asyncio.get_running_loop().call_later(
            _REJOIN_DELAY_S, self._join_again, subscription, self._connection
        )

    def _drop(self, subscription: AsyncSubscription, error: TailraceError) -> None:
        self._by_name.pop(subscription.name, None)
        subscription.end(error)

    def _join_again(self, subscription: AsyncSubscription, connection: Connection | None) -> None:
        if self._connection is connection:  # else the new one has brought an attempt of its own
            self._send_join(subscription)

    def _send_join(self, subscription: AsyncSubscription) -> None:
        if subscription.ended.is_set() or self._connection is None or self._connection.closed:
            return
        self._connection.send(
            MessageType.SUBSCRIBE, subscription.join_properties(), awaiting=_Join(self, subscription)
        )

    # ---- what the link tells

    def connected(self, connection: Connection) -> None:
        self._connection = connection
        for subscription in self._by_name.values():
            self._send_join(subscription)

    def disconnected(self) -> None:
        self._connection = None
        for subscription in self._by_name.values():
            subscription.is_joined = False
            subscription.forget()

    def ended(self, error: TailraceError) -> None:
        self._connection = None
        for subscription in list(self._by_name.values()):
            self._drop(subscription, error)
