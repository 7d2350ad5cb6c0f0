"""Which quotas a client has, by Kafka's precedence, and their buckets.

The first of these that has the quota in question decides, for each of the quotas by itself:

    user and client id | user, default client id | user | default user, client id |
    default user and client id | default user | client id | default client id

Clients share a bucket by the parts that the entity has: all connections of user alice one for user=alice, and
each client id of alice another one for user=alice,client-id=*. What is kept of clients is bounded, and what
was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, TypeVar

from tailrace.broker.quotas.bucket import Bucket
from tailrace.broker.quotas.entity import CLIENT_ID, IP, USER, Entity
from tailrace.broker.quotas.meter import Meter, ThrottleCounts
from tailrace.broker.quotas.quota import CONNECTIONS, FETCH, PRODUCE, REQUEST, Values

_KEPT_MAX: Final = 20_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Buckets:
    """Buckets by what they are for."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._buckets: OrderedDict[tuple[str, ...], Bucket] = OrderedDict()

    def of(self, key: tuple[str, ...], rate: float) -> Bucket:
        found = self._buckets.get(key)
        if found is None:
            found = _keep(self._buckets, key, Bucket(rate, self._monotonic()))
        elif found.rate != rate:
            found.set_rate(rate, self._monotonic())
        self._buckets.move_to_end(key)
        return found


class Metering:
    """The meters of clients, while there are quotas of users or client ids."""

    def __init__(self, monotonic: Callable[[], float], counts: ThrottleCounts) -> None:
        self._monotonic = monotonic
        self._counts = counts
        self._quotas: Mapping[Entity, Values] = {}
        self._buckets = _Buckets(monotonic)
        self._meters: OrderedDict[tuple[str, str], Meter | None] = OrderedDict()

    def change(self, quotas: Mapping[Entity, Values]) -> None:
        """These hold from now on; debts stay."""
        self._quotas = quotas
        self._meters.clear()

    def meter(self, user: str, client_id: str) -> Meter | None:
        """What requests of a client are charged to; None if it has no quota. An empty client id is none."""
        key = (user, client_id)
        if key in self._meters:
            return self._meters[key]
        return _keep(self._meters, key, self._make(user, client_id))

    def _make(self, user: str, client_id: str) -> Meter | None:
        produce = self._bucket(PRODUCE, user, client_id)
        fetch = self._bucket(FETCH, user, client_id)
        request = self._bucket(REQUEST, user, client_id, unit=0.01)  # percent, and seconds a second
        if produce is fetch is request is None:
            return None
        return Meter(
            produce=produce, fetch=fetch, request=request, monotonic=self._monotonic, counts=self._counts
        )

    def _bucket(self, quota: str, user: str, client_id: str, *, unit: float = 1.0) -> Bucket | None:
        for entity, shared in _levels(user, client_id):
            values = self._quotas.get(entity)
            if values is not None and quota in values:
                return self._buckets.of((quota, *shared), values[quota] * unit)
        return None


class ConnectionRates:
    """Whether addresses may open connections, while there are quotas of addresses."""

    def __init__(self, monotonic: Callable[[], float], counts: ThrottleCounts) -> None:
        self._monotonic = monotonic
        self._counts = counts
        self._quotas: Mapping[Entity, Values] = {}
        self._buckets = _Buckets(monotonic)

    def change(self, quotas: Mapping[Entity, Values]) -> None:
        self._quotas = quotas

    def admits(self, address: str) -> bool:
        """Whether one more connection may be opened now; one that may not costs nothing."""
        values = self._quotas.get(Entity(((IP, address),))) or self._quotas.get(Entity(((IP, None),)))
        if values is None:
            return True
        bucket = self._buckets.of((address,), values[CONNECTIONS])
        now = self._monotonic()
        if not bucket.wait_s(now) and not bucket.take(1.0, now):
            return True
        bucket.take(-1.0, now)
        self._counts.connections += 1
        return False


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, str, str]]]:
    """The entities that may have a quota for a client, and what shares a bucket there."""
    for name in (user, None):
        both = ("both", user, client_id)
        if client_id:
            yield Entity(((USER, name), (CLIENT_ID, client_id))), both
            yield Entity(((USER, name), (CLIENT_ID, None))), both
        yield Entity(((USER, name),)), ("user", user, "")
    if client_id:
        yield Entity(((CLIENT_ID, client_id),)), ("client", "", client_id)
        yield Entity(((CLIENT_ID, None),)), ("client", "", client_id)


def _keep(kept: OrderedDict[K, V], key: K, value: V) -> V:
    kept[key] = value
    if len(kept) > _KEPT_MAX:
        kept.popitem(last=False)
    return value
