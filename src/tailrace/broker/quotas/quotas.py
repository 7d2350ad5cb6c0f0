"""The quotas of a node, kept in a `QuotaStore`. A change is stored first, and counts at once then.

A change is done to its end, also where its caller has stopped waiting. A StorageError in the middle of one
ends the broker: it is not known whether the change was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from tailrace.broker.quotas.entity import Entity
from tailrace.broker.quotas.meter import ThrottleCounts
from tailrace.broker.quotas.metering import ConnectionRates, Metering
from tailrace.broker.quotas.quota import Values, plan_values
from tailrace.model import BrokerError, ErrorCode, StorageError

ENTITIES_MAX: Final = 10_000

Changes = Mapping[str, float | None]
"""Quotas by name; None takes one away."""


class QuotaStore(Protocol):
    """Keeps quotas; what `save` returned from is durable."""

    async def load(self) -> Mapping[Entity, Values]:
        """Everything that is stored."""

    async def save(self, changed: Mapping[Entity, Values]) -> None:
        """Store these, in one step; an entity without values is forgotten."""


class MemoryQuotas:
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, Values] = {}

    async def load(self) -> Mapping[Entity, Values]:
        return dict(self._quotas)

    async def save(self, changed: Mapping[Entity, Values]) -> None:
        self._quotas = {key: values for key, values in {**self._quotas, **changed}.items() if values}


def _ignore(error: BaseException) -> None:
    """The caller of the change has the error too."""


class Quotas(Mapping[Entity, Values]):
    """Quotas by entity, in the order of their texts."""

    def __init__(
        self,
        store: QuotaStore | None = None,
        *,
        monotonic: Callable[[], float],
        on_failure: Callable[[BaseException], None] = _ignore,
    ) -> None:
        self._store = store or MemoryQuotas()
        self._on_failure = on_failure
        self.counts = ThrottleCounts()
        self._quotas: Mapping[Entity, Values] = {}
        self._metering = Metering(monotonic, self.counts)
        self._rates = ConnectionRates(monotonic, self.counts)
        self.metering: Metering | None = None  # None: no user and no client id has a quota
        self.connection_rates: ConnectionRates | None = None  # None: no address has one
        self._watchers: list[Callable[[], None]] = []
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Quotas of {len(self)} entities>"

    def __getitem__(self, entity: Entity) -> Values:
        return self._quotas[entity]

    def __iter__(self) -> Iterator[Entity]:
        return iter(sorted(self._quotas, key=str))

    def __len__(self) -> int:
        return len(self._quotas)

    async def load(self) -> None:
        """Take over what is stored."""
        self._take(await self._store.load())

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    def watch(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after every change."""
        self._watchers.append(callback)

    async def alter(self, changes: Sequence[tuple[Entity, Changes]], *, validate_only: bool = False) -> None:
        """Change quotas of entities, all or none; INVALID_REQUEST."""
        task = asyncio.get_running_loop().create_task(
            self._alter(changes, validate_only=validate_only), name="quota-change"
        )
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _alter(self, changes: Sequence[tuple[Entity, Changes]], *, validate_only: bool) -> None:
        async with self._changing:
            changed: dict[Entity, Values] = {}
            for entity, values in changes:
                present = changed.get(entity, self._quotas.get(entity, {}))
                changed[entity] = plan_values(entity, present, values)
            made = {key: values for key, values in {**self._quotas, **changed}.items() if values}
            if len(made) > max(ENTITIES_MAX, len(self._quotas)):
                raise BrokerError(
                    f"{ENTITIES_MAX} users, client ids and addresses have quotas, and no more may. Set a "
                    "default, or remove quotas that are not used",
                    code=ErrorCode.POLICY_VIOLATION,
                )
            if validate_only:
                return
            try:
                await self._store.save(changed)
            except StorageError as error:
                self._on_failure(error)
                raise
            self._take(made)

    def _take(self, quotas: Mapping[Entity, Values]) -> None:
        self._quotas = quotas
        self._metering.change(quotas)
        self._rates.change(quotas)
        of_addresses = any(each.is_address for each in quotas)
        self.metering = self._metering if not all(each.is_address for each in quotas) else None
        self.connection_rates = self._rates if of_addresses else None
        for watcher in self._watchers:
            watcher()
