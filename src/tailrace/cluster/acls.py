"""Access control entries in the store of the metadata: `acls/<id>`.

    acls/3f0c...   {"host": "*", "name": "orders", "operation": "read", "pattern": "literal",
                   "permission": "allow", "principal": "User:alice", "resource": "topic"}

The id is made from the entry (`binding_id`). An entry that this program cannot read stops the start: a denial
that is passed over would allow what it denies.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from tailrace.cluster import record
from tailrace.cluster.metadata import first_start
from tailrace.cluster.store import ABSENT, Store
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.security.acl import AclBinding
from tailrace.security.acl.text import FIELDS, acl_fields
from tailrace.security.acl.text import read_acl as read_words

ACLS: Final = record.ACLS
_ATTEMPTS_MAX: Final = 10


class MetadataAcls:
    """The entries in a store, which belongs to the one that opened it (`security.acl.AclStore`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<MetadataAcls in {self._store}>"

    async def load(self) -> Mapping[str, AclBinding]:
        entries = (await self._store.read(ACLS)).entries
        try:
            return {key.removeprefix(ACLS): read_acl(key, each.value) for key, each in entries.items()}
        except ValueError as error:
            raise StorageError(
                "read access control entries in",
                str(self._store),
                str(error),
                hint="A newer version wrote it, and can remove it, or it is damaged: tailrace storage",
            ) from None

    async def change(self, *, added: Mapping[str, AclBinding], removed: Collection[str]) -> None:
        for _ in range(_ATTEMPTS_MAX):
            known = (await self._store.read(record.CLUSTER)).entries
            puts = {ACLS + key: write_acl(each) for key, each in added.items()}
            checks: dict[str, int] = {}
            if record.CLUSTER not in known:  # nobody started a broker here yet
                puts |= first_start()
                checks[record.CLUSTER] = ABSENT
            deletes = [ACLS + key for key in removed]
            if await self._store.commit(checks=checks, puts=puts, deletes=deletes) is not None:
                return
        raise BrokerError(
            f"the metadata was changed by others {_ATTEMPTS_MAX} times in a row. Try again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )


def write_acl(binding: AclBinding) -> str:
    return json.dumps(acl_fields(binding), sort_keys=True, separators=(",", ":"))


def read_acl(key: str, text: str) -> AclBinding:
    """ValueError names the key."""
    try:
        fields = json.loads(text)
        if fields.keys() != set(FIELDS) or not all(isinstance(each, str) for each in fields.values()):
            raise TypeError
        return read_words(fields)
    except (ValueError, TypeError, AttributeError, BrokerError):
        raise ValueError(f"{key} is not an access control entry as this program writes it") from None
