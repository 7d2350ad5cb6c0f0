"""At most once: messages leave when the cursor past them is durable, and are never seen again after that.

A member holds them until they are sent, so that his credit bounds what waits for one slow write.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.delivery import Delivery
from tailrace.broker.subscriptions.member import Member

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.subscription import Subscription

logger = logging.getLogger(__name__)


class SendWhenDurable:
    """Waits for a cursor (`storage.api.Waiter`), then lets messages go."""

    __slots__ = ("_deliveries", "_member", "_subscription", "_told")

    def __init__(self, subscription: Subscription, member: Member, deliveries: Sequence[Delivery]) -> None:
        self._subscription = subscription
        self._member = member
        self._deliveries = deliveries
        self._told = False

    def done(self) -> bool:
        return self._told

    def set_result(self, result: None, /) -> None:  # noqa: ARG002
        self._told = True
        self._subscription.send_durable(self._member, self._deliveries)

    def set_exception(self, error: Exception, /) -> None:
        self._told = True
        logger.warning(
            "messages not delivered, and never will be (at_most_once): subscription=%s count=%d %s",
            self._subscription.config.name,
            len(self._deliveries),
            error,
        )
        self._subscription.let_go(self._member, len(self._deliveries))
