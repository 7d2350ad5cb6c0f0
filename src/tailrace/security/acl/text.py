"""Entries and filters in words, as the store, the REST API and the command line have them.

    {"principal": "User:alice", "host": "*", "operation": "read", "permission": "allow",
     "resource": "topic", "name": "orders", "pattern": "literal"}

Kinds of resources have small letters and `_`; `all` is every operation. The cluster has one name, which may
be left out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeVar

from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import CLUSTER, Operation, ResourceKind
from tailrace.security.acl.binding import EVERYWHERE, AclBinding, Pattern, Permission
from tailrace.security.acl.filter import AclFilter, PatternFilter

ALL: Final = "all"
FIELDS: Final = ("principal", "host", "operation", "permission", "resource", "name", "pattern")

E = TypeVar("E", bound=enum.IntEnum)


def acl_fields(binding: AclBinding) -> dict[str, str]:
    """An entry in words."""
    return {
        "principal": binding.principal,
        "host": binding.host,
        "operation": ALL if binding.operation is None else word(binding.operation),
        "permission": word(binding.permission),
        "resource": word(binding.kind),
        "name": binding.name,
        "pattern": word(binding.pattern),
    }


def view_acl(key: str, binding: AclBinding) -> dict[str, str]:
    """An entry in words, with its id."""
    return {"id": key, **acl_fields(binding)}


def read_acl(fields: Mapping[str, str]) -> AclBinding:
    """The entry that words describe; INVALID_REQUEST says which of them is none, and what would be."""
    kind = _read(ResourceKind, fields.get("resource", ""), "resource")
    operation = fields.get("operation", "")
    return AclBinding(
        principal=fields.get("principal", ""),
        host=fields.get("host", EVERYWHERE),
        operation=None if operation == ALL else _read(Operation, operation, "operation", ALL),
        permission=_read(Permission, fields.get("permission", ""), "permission"),
        kind=kind,
        name=fields.get("name", CLUSTER.name if kind is ResourceKind.CLUSTER else ""),
        pattern=_read(Pattern, fields.get("pattern", word(Pattern.LITERAL)), "pattern"),
    )


def read_filter(fields: Mapping[str, str]) -> AclFilter:
    """The filter that words describe: what is left out is anything. INVALID_REQUEST."""
    operation = fields.get("operation")
    about_one = operation not in (None, ALL)
    return AclFilter(
        kind=_read(ResourceKind, fields["resource"], "resource") if "resource" in fields else None,
        name=fields.get("name"),
        pattern=_read(PatternFilter, fields["pattern"], "pattern")
        if "pattern" in fields
        else PatternFilter.ANY,
        principal=fields.get("principal"),
        host=fields.get("host"),
        operation=_read(Operation, operation or "", "operation", ALL) if about_one else None,
        is_about_all=operation == ALL,
        permission=_read(Permission, fields["permission"], "permission") if "permission" in fields else None,
    )


def word(value: enum.IntEnum) -> str:
    """What a value is called."""
    return value.name.lower()


def _read(kind: type[E], text: str, field: str, *others: str) -> E:
    for each in kind:
        if text == word(each):
            return each
    known = ", ".join([*others, *map(word, kind)])
    raise BrokerError(f"{field} {text[:60]!r} is not one of: {known}", code=ErrorCode.INVALID_REQUEST)
