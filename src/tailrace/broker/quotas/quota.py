"""What a quota bounds, by Kafka's names.

producer_byte_rate        bytes of records sent, in a second
consumer_byte_rate        bytes of records received, in a second
request_percentage        time of the broker's thread: 100 is all of it
connection_creation_rate  new connections of an address, in a second
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tailrace.broker.quotas.entity import Entity, invalid

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
CONNECTIONS: Final = "connection_creation_rate"
OF_CLIENTS: Final = (PRODUCE, FETCH, REQUEST)
_RATE_MAX: Final = float(1 << 53)
_MOST: Final[Mapping[str, float]] = MappingProxyType(
    {PRODUCE: _RATE_MAX, FETCH: _RATE_MAX, REQUEST: 100_000.0, CONNECTIONS: float((1 << 31) - 1)}
)

Values = Mapping[str, float]
"""Quotas of one entity, by name."""


def plan_values(entity: Entity, present: Values, changes: Mapping[str, float | None]) -> dict[str, float]:
    """What an entity has after changes, where None takes a quota away; INVALID_REQUEST."""
    for name, value in changes.items():
        check_quota(entity, name, value)
    made = {**present, **changes}
    return {name: value for name, value in sorted(made.items()) if value is not None}


def check_quota(entity: Entity, name: str, value: float | None) -> None:
    """INVALID_REQUEST for a quota that the entity cannot have."""
    known = (CONNECTIONS,) if entity.is_address else OF_CLIENTS
    if name not in known:
        whose = "an address" if entity.is_address else "a user or a client id"
        raise invalid(f"there is no quota {name[:40]!r} of {whose}. There are: {', '.join(known)}")
    if value is None:
        return
    if name == CONNECTIONS and value != int(value if math.isfinite(value) else 0):
        raise invalid(f"{name} must be a whole number")
    if not math.isfinite(value) or not 0 < value <= _MOST[name]:
        raise invalid(f"{name} must be over 0, and {_MOST[name]:.0f} at most. To have none, remove it")
