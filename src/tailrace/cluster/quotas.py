"""Quotas in the store of the metadata: `quotas/<entity>`.

quotas/user=alice               {"producer_byte_rate": 1048576.0, "request_percentage": 25.0}
quotas/user=*,client-id=etl     {"consumer_byte_rate": 2097152.0}
quotas/ip=*                     {"connection_creation_rate": 50.0}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tailrace.broker.quotas import Entity
from tailrace.broker.quotas.entity import read_entity
from tailrace.broker.quotas.quota import Values, plan_values
from tailrace.cluster import record
from tailrace.cluster.metadata import first_start
from tailrace.cluster.store import ABSENT, Store
from tailrace.model import BrokerError, ErrorCode, StorageError

QUOTAS: Final = record.QUOTAS
_ATTEMPTS_MAX: Final = 10


class MetadataQuotas:
    """The quotas in a store, which belongs to whoever opened it (`broker.quotas.QuotaStore`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<MetadataQuotas in {self._store}>"

    async def load(self) -> Mapping[Entity, Values]:
        try:
            return dict(
                read_quotas(key, entry.value)
                for key, entry in (await self._store.read(QUOTAS)).entries.items()
            )
        except ValueError as error:
            raise StorageError(
                "read quotas in",
                str(self._store),
                str(error),
                hint="Stop the broker, and remove them: tailrace quota remove, with --data-dir",
            ) from None

    async def save(self, changed: Mapping[Entity, Values]) -> None:
        puts = {f"{QUOTAS}{entity}": _text(values) for entity, values in changed.items() if values}
        deletes = [f"{QUOTAS}{entity}" for entity, values in changed.items() if not values]
        for _ in range(_ATTEMPTS_MAX):
            cluster = (await self._store.read(record.CLUSTER)).entries
            # A directory in which no broker was started yet gets the id of its cluster.
            first = {} if record.CLUSTER in cluster else first_start()
            checks = dict.fromkeys(first, ABSENT)
            if await self._store.commit(checks=checks, puts={**puts, **first}, deletes=deletes) is not None:
                return
        raise BrokerError(
            f"quotas were changed by others {_ATTEMPTS_MAX} times in a row. Try again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )


def read_quotas(key: str, text: str) -> tuple[Entity, Values]:
    """ValueError names the key."""
    try:
        entity = read_entity(key.removeprefix(QUOTAS))
        values = json.loads(text)
        if (
            not isinstance(values, dict)
            or not values
            or any(type(each) is not float for each in values.values())
        ):
            raise TypeError
        return entity, plan_values(entity, {}, values)
    except (ValueError, TypeError, BrokerError):
        raise ValueError(f"{key} is not a quota as this program writes it") from None


def _text(values: Values) -> str:
    return json.dumps(
        {name: float(value) for name, value in values.items()}, sort_keys=True, separators=(",", ":")
    )
