"""Access control entries, on a broker that runs or does not (`data_directory`).

Entries travel as the rows that the REST API shows. CommandFailed says why something could not be done.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from tailrace.cli.data_directory import Place, ask

if TYPE_CHECKING:
    from tailrace.cluster import Store
    from tailrace.security.acl import Acls

Row = dict[str, Any]

_PATH: Final = "/api/v1/acls"


class AclAccess:
    """The entries of one place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def find(self, wanted: Mapping[str, str]) -> list[Row]:
        """The entries that have these fields."""

        async def read(acls: Acls) -> list[Row]:
            from tailrace.security.acl.text import read_filter, view_acl

            return [view_acl(key, each) for key, each in acls.matching(read_filter(wanted)).items()]

        def on_broker(address: str) -> list[Row]:
            query = f"?{urlencode(wanted)}" if wanted else ""
            found: list[Row] = ask(address, "GET", _PATH + query)["acls"]
            return found

        return sorted(self._use(on_broker, read), key=_order)

    def add(self, rows: Sequence[Mapping[str, str]]) -> list[Row]:
        """Create entries, all or none."""

        async def store(acls: Acls) -> list[Row]:
            from tailrace.security.acl.text import read_acl, view_acl

            added = await acls.add([read_acl(each) for each in rows])
            return [view_acl(key, each) for key, each in added.items()]

        def on_broker(address: str) -> list[Row]:
            added: list[Row] = ask(address, "POST", _PATH, {"acls": [dict(each) for each in rows]})["acls"]
            return added

        added: list[Row] = self._use(on_broker, store)
        return added

    def remove(self, key: str) -> None:
        """Remove the entry of this id."""

        async def forget(acls: Acls) -> None:
            await acls.remove_by_id(key)

        self._use(lambda address: ask(address, "DELETE", f"{_PATH}/{quote(key, safe='')}"), forget)

    def _use(self, over_http: Callable[[str], Any], work: Callable[[Acls], Coroutine[Any, Any, Any]]) -> Any:
        async def here(store: Store) -> Any:
            from tailrace.cluster import MetadataAcls
            from tailrace.security.acl import Acls

            acls = Acls(MetadataAcls(store))
            try:
                await acls.load()
                return await work(acls)
            finally:
                await acls.close()

        return self._place.change(over_http, here)


def _order(row: Row) -> tuple[str, ...]:
    return row["resource"], row["name"], row["principal"], row["permission"], row["operation"], row["host"]
