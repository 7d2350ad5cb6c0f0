"""One entry of the access control lists, such as: allow User:alice to read topic 'orders'.

The numbers of patterns and permissions are Kafka's (KIP-290). The id of an entry is made from what it says,
so that the same entry is stored once, however often it is created.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
import json
from dataclasses import dataclass
from typing import Final

from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import (
    CLUSTER,
    OPERATIONS_ON,
    RESERVED_PREFIX,
    Operation,
    Resource,
    ResourceKind,
)

EVERYBODY: Final = "User:*"
EVERYWHERE: Final = "*"
ANY_NAME: Final = "*"
_USER: Final = "User:"
_ID_LENGTH: Final = 32
_PRINCIPAL_LENGTH_MAX: Final = 1024
_NAME_BYTES_MAX: Final = 32_000  # as long as a transactional id may be
_SHOWN_MAX: Final = 100


class Pattern(enum.IntEnum):
    """How the name of an entry matches the names of resources."""

    LITERAL = 3
    """The name itself; `*` matches every name."""
    PREFIXED = 4
    """Every name that begins with it."""


class Permission(enum.IntEnum):
    """What an entry says of the operation."""

    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """An entry. `operation` None is every operation."""

    principal: str
    host: str = EVERYWHERE
    operation: Operation | None
    permission: Permission
    kind: ResourceKind
    name: str
    pattern: Pattern = Pattern.LITERAL

    def __str__(self) -> str:
        operation = "all" if self.operation is None else self.operation.name.lower()
        where = "" if self.host == EVERYWHERE else f" at {self.host}"
        return f"{self.permission.name.lower()} {self.principal}{where} to {operation} {self.resource}"

    @property
    def resource(self) -> str:
        """What the entry is about, for people."""
        prefixed = " and what begins so" if self.pattern is Pattern.PREFIXED else ""
        return f"{Resource(self.kind, self.name)}{prefixed}"


def matches_name(pattern: Pattern, name: str, wanted: str) -> bool:
    """Whether a pattern with this name matches a resource of the name `wanted`."""
    if pattern is Pattern.LITERAL and name == wanted:
        return True
    if wanted.startswith(RESERVED_PREFIX):
        return False
    return name == ANY_NAME if pattern is Pattern.LITERAL else wanted.startswith(name)


def binding_id(binding: AclBinding) -> str:
    """The id of an entry: 32 hexadecimal digits, the same for the same entry."""
    parts = [
        binding.principal,
        binding.host,
        0 if binding.operation is None else int(binding.operation),
        int(binding.permission),
        int(binding.kind),
        binding.name,
        int(binding.pattern),
    ]
    text = json.dumps(parts, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]


def check_binding(binding: AclBinding) -> None:
    """INVALID_REQUEST for an entry that could never matter, with what would."""
    check_principal(binding.principal)
    check_host(binding.host)
    _check_operation(binding)
    _check_name(binding)


def check_principal(principal: str) -> None:
    """INVALID_REQUEST unless this can be a principal of an entry: `User:` and a name."""
    name = principal.removeprefix(_USER)
    if name == principal or not 0 < len(name) <= _PRINCIPAL_LENGTH_MAX or not name.isprintable():
        raise _invalid(
            f"principal {principal[:_SHOWN_MAX]!r} is not {_USER}NAME, such as User:alice or User:*"
        )


def check_host(host: str) -> None:
    """INVALID_REQUEST unless this is an address or `*`; names are never looked up."""
    if host != EVERYWHERE and not (host and plain_host(host) == host):
        raise _invalid(
            f"host {host[:_SHOWN_MAX]!r} is not * and not the address of a client as the broker sees it, "
            "such as 192.0.2.7 or 2001:db8::7. Names are not looked up"
        )


def plain_host(host: str) -> str:
    """An address in the one form that entries have; "" for what is none."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _check_operation(binding: AclBinding) -> None:
    known = OPERATIONS_ON[binding.kind]
    if binding.operation is not None and binding.operation not in known:
        names = ", ".join(each.name.lower() for each in known)
        raise _invalid(
            f"there is no operation {binding.operation.name.lower()} on a {_kind(binding.kind)}. "
            f"There are: all, {names}"
        )


def _check_name(binding: AclBinding) -> None:
    name, size = binding.name, len(binding.name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= _NAME_BYTES_MAX:
        raise _invalid(f"the name of a resource has 1 to {_NAME_BYTES_MAX} bytes, not {size}")
    if binding.kind is ResourceKind.CLUSTER:
        if name != CLUSTER.name or binding.pattern is not Pattern.LITERAL:
            raise _invalid(f"the cluster has the one name {CLUSTER.name}, and a literal pattern")
    elif binding.pattern is Pattern.PREFIXED and name.startswith(RESERVED_PREFIX):
        raise _invalid(
            f"a prefix does not match names that begin with {RESERVED_PREFIX}, which belong to the broker. "
            "Name each one literally"
        )


def _kind(kind: ResourceKind) -> str:
    return kind.name.lower().replace("_", " ")


def _invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
