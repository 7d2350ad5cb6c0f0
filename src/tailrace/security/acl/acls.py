"""The access control lists of a node: in memory for decisions, in an `AclStore` for good.

A change is stored first and counts for every decision then; watchers are told. Changes come one after the
other, and each is done to its end, also where its caller stopped waiting. A StorageError in the middle of a
change ends the broker: it is not known whether the change was stored.

A decision is kept until the next change, by principal, address, operation and resource. How many are kept has
a bound, and so has the length of the names in them, because clients choose both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.operation import Operation, Resource
from tailrace.model.session import Principal
from tailrace.security.acl.binding import AclBinding, binding_id, check_binding
from tailrace.security.acl.decision import decide
from tailrace.security.acl.filter import AclFilter
from tailrace.security.acl.index import AclIndex
from tailrace.security.acl.store import AclStore, MemoryAcls

ACLS_MAX: Final = 100_000
_KEPT_MAX: Final = 65_536
_KEPT_NAME_LENGTH_MAX: Final = 255

Changed = Callable[[], None]
Plan = Callable[[], tuple[Mapping[str, AclBinding], Mapping[str, AclBinding]]]
"""What a change adds and removes, decided in its turn."""


def _ignore(error: BaseException) -> None:
    """The caller of the change has the error too."""


class Acls(Mapping[str, AclBinding]):
    """Entries by their ids."""

    def __init__(
        self, store: AclStore | None = None, *, on_failure: Callable[[BaseException], None] = _ignore
    ) -> None:
        self._store = store or MemoryAcls()
        self._on_failure = on_failure
        self._index = AclIndex()
        self._kept: dict[tuple[Principal, str, Operation, Resource], bool] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Mapping[str, AclBinding]]] = set()
        self._watchers: list[Changed] = []

    def __repr__(self) -> str:
        return f"<Acls: {len(self)}>"

    def __getitem__(self, key: str) -> AclBinding:
        return self._index[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    async def load(self) -> None:
        """Take over what is stored."""
        index = AclIndex()
        for key, binding in (await self._store.load()).items():
            index.add(key, binding)
        self._index = index
        self._kept.clear()

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    # ---- deciding

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether the entries allow it."""
        key = principal, host, operation, resource
        found = self._kept.get(key)
        if found is None:
            found = decide(
                self._index, principal=str(principal), host=host, operation=operation, resource=resource
            )
            if len(resource.name) <= _KEPT_NAME_LENGTH_MAX:
                if len(self._kept) >= _KEPT_MAX:
                    self._kept.clear()
                self._kept[key] = found
        return found

    def matching(self, wanted: AclFilter) -> dict[str, AclBinding]:
        """The entries that a filter means, by id."""
        return {key: each for key, each in self._index.items() if wanted.admits(each)}

    def watch(self, callback: Changed) -> None:
        """Have `callback` called after every change."""
        self._watchers.append(callback)

    def unwatch(self, callback: Changed) -> None:
        self._watchers.remove(callback)

    # ---- changing

    async def add(self, bindings: Iterable[AclBinding]) -> Mapping[str, AclBinding]:
        """Store entries, all or none; those that are there already stay. Returns all of them by id."""
        wanted = {binding_id(each): each for each in bindings}
        for each in wanted.values():
            check_binding(each)

        def plan() -> tuple[Mapping[str, AclBinding], Mapping[str, AclBinding]]:
            new = {key: each for key, each in wanted.items() if key not in self._index}
            if len(self._index) + len(new) > ACLS_MAX:
                raise BrokerError(
                    f"there are {len(self._index)} access control entries, and {len(new)} more would be over "
                    f"{ACLS_MAX}. Remove those that are not used, or use prefixes",
                    code=ErrorCode.POLICY_VIOLATION,
                )
            return new, {}

        await self._change(plan)
        return wanted

    async def remove(self, wanted: Iterable[AclFilter]) -> Mapping[str, AclBinding]:
        """Forget the entries that any of the filters means; returns them by id."""
        filters = list(wanted)

        def plan() -> tuple[Mapping[str, AclBinding], Mapping[str, AclBinding]]:
            return {}, {key: each for one in filters for key, each in self.matching(one).items()}

        return await self._change(plan)

    async def remove_by_id(self, key: str) -> AclBinding:
        """Forget one entry; RESOURCE_NOT_FOUND."""

        def plan() -> tuple[Mapping[str, AclBinding], Mapping[str, AclBinding]]:
            return {}, {key: self.known(key)}

        return (await self._change(plan))[key]

    def known(self, key: str) -> AclBinding:
        """The entry; RESOURCE_NOT_FOUND."""
        found = self._index.get(key)
        if found is None:
            raise UnknownAcl(key)
        return found

    # ---- inside

    async def _change(self, plan: Plan) -> Mapping[str, AclBinding]:
        task = asyncio.get_running_loop().create_task(self._perform(plan), name="acl-change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _perform(self, plan: Plan) -> Mapping[str, AclBinding]:
        """Returns what was removed."""
        async with self._changing:
            added, removed = plan()
            if not added and not removed:
                return {}
            try:
                await self._store.change(added=added, removed=removed)
            except StorageError as error:
                self._on_failure(error)
                raise
            for key in removed:
                self._index.remove(key)
            for key, binding in added.items():
                self._index.add(key, binding)
            self._kept.clear()
        for watcher in list(self._watchers):
            watcher()
        return removed


class UnknownAcl(BrokerError):
    """There is no entry of this id."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"there is no access control entry {key[:64]!r}. Try: tailrace acl list",
            code=ErrorCode.RESOURCE_NOT_FOUND,
        )
