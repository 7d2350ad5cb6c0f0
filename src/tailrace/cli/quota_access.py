"""The quotas of a broker, running or not (`data_directory`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.cli.data_directory import Place, ask

if TYPE_CHECKING:
    from tailrace.broker.quotas import Quotas
    from tailrace.cluster import Store

T = TypeVar("T")

_PATH: Final = "/api/v1/quotas"
Names = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class QuotaAccess:
    """Quotas, wherever they are. CommandFailed says why something could not be done."""

    place: Place

    def rows(self) -> list[dict[str, Any]]:
        async def here(quotas: Quotas) -> list[dict[str, Any]]:
            return [{"entity": each.names(), "values": dict(values)} for each, values in quotas.items()]

        return self._change(_listed, here)

    def names_of(self, entity: Names) -> list[str]:
        """The quotas that an entity has."""
        return [name for each in self.rows() if each["entity"] == dict(entity) for name in each["values"]]

    def alter(self, entity: Names, values: Mapping[str, float | None]) -> dict[str, Any]:
        """Change quotas, where None removes one; what the entity has then."""

        async def here(quotas: Quotas) -> dict[str, Any]:
            from tailrace.broker.quotas import make_entity

            made = make_entity(entity)
            await quotas.alter([(made, values)])
            return {"entity": made.names(), "values": dict(quotas.get(made, {}))}

        body = {"entity": dict(entity), "values": dict(values)}
        return self._change(lambda address: dict(ask(address, "PATCH", _PATH, body)), here)

    def _change(self, on_broker: Callable[[str], T], here: Callable[[Quotas], Coroutine[Any, Any, T]]) -> T:
        async def work(store: Store) -> T:
            from tailrace.broker.quotas import Quotas
            from tailrace.cluster import MetadataQuotas
            from tailrace.runtime import SystemClock

            quotas = Quotas(MetadataQuotas(store), monotonic=SystemClock().monotonic)
            try:
                await quotas.load()
                return await here(quotas)
            finally:
                await quotas.close()

        return self.place.change(on_broker, work)


def _listed(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(address, "GET", _PATH)["quotas"]
    return found
