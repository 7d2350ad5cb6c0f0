"""Access control entries as a session may see and change them: each change is in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from tailrace.security.acl import AclBinding, Acls
from tailrace.security.acl.filter import AclFilter
from tailrace.security.audit import Change


class AuditedAcls:
    """The entries of a node, for one session."""

    def __init__(self, acls: Acls, changing: Callable[[str, str], Change]) -> None:
        self._acls = acls
        self._changing = changing

    def matching(self, wanted: AclFilter) -> dict[str, AclBinding]:
        """The entries that a filter means, by id."""
        return self._acls.matching(wanted)

    async def add(self, bindings: Iterable[AclBinding]) -> Mapping[str, AclBinding]:
        """Store entries, all or none."""
        bindings = list(bindings)
        with ExitStack() as changes:
            for each in bindings:
                changes.enter_context(self._changing("acl.create", str(each)))
            return await self._acls.add(bindings)

    async def remove(self, wanted: Iterable[AclFilter]) -> Mapping[str, AclBinding]:
        """Forget the entries that filters mean; returns them."""
        removed = await self._acls.remove(wanted)
        for each in removed.values():
            self._changing("acl.delete", str(each)).done()
        return removed

    async def remove_by_id(self, key: str) -> AclBinding:
        """Forget one entry."""
        removed = await self._acls.remove_by_id(key)
        self._changing("acl.delete", str(removed)).done()
        return removed
