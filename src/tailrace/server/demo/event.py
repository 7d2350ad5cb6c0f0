"""Made-up events of a shop: orders, their payments, clicks. Pure: the same seed gives the same events.

The key of an order and of its payment is the customer, that of a click is the session, so that what belongs
together keeps its order in one partition.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

_CUSTOMERS = 500
_SESSIONS = 2_000
_PAGES = ("/", "/search", "/product", "/basket", "/checkout", "/help")
_METHODS = ("card", "transfer", "wallet")
_UNPAID_MAX = 1_000


class Event(NamedTuple):
    """One record to be."""

    topic: str
    key: bytes
    value: bytes


class Shop:
    """Where the events come from."""

    def __init__(self, rng: random.Random, *, orders: int = 0) -> None:
        """`orders` were made before: the numbers go on behind them."""
        self._rng = rng
        self._orders = orders
        self._unpaid: deque[tuple[str, str, str]] = deque(maxlen=_UNPAID_MAX)

    def events(self) -> Iterator[Event]:
        """For ever: of five events one is an order, one a payment, three are clicks."""
        while True:
            yield self._order()
            yield self._click()
            yield self._payment()
            yield self._click()
            yield self._click()

    def _order(self) -> Event:
        self._orders += 1
        number, customer = f"o-{self._orders:06d}", f"c-{self._rng.randrange(_CUSTOMERS):03d}"
        quantity, cents = self._rng.randint(1, 4), self._rng.randint(199, 9_999)
        total = _money(quantity * cents)
        self._unpaid.append((number, customer, total))
        body = {
            "order": number,
            "customer": customer,
            "product": f"p-{self._rng.randrange(100):02d}",
            "quantity": quantity,
            "total": total,
        }
        return _event("orders", customer, body)

    def _payment(self) -> Event:
        number, customer, total = self._unpaid.popleft()
        body = {
            "order": number,
            "customer": customer,
            "amount": total,
            "method": self._rng.choice(_METHODS),
            "accepted": self._rng.random() < 0.97,
        }
        return _event("payments", customer, body)

    def _click(self) -> Event:
        session = f"s-{self._rng.randrange(_SESSIONS):04d}"
        body = {"session": session, "page": self._rng.choice(_PAGES), "load_ms": self._rng.randint(20, 900)}
        return _event("clicks", session, body)


def _event(topic: str, key: str, body: dict[str, object]) -> Event:
    return Event(topic, key.encode(), json.dumps(body).encode())


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
