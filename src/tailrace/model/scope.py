"""What an API token may do: some of what its owner may, written as OPERATION:KIND:NAME.

    read:topic:orders       this topic
    write:topic:orders-*    topics whose names begin so; * alone: every topic
    read:group:*            operations and kinds are those of access control lists, in small letters
    describe:cluster        the cluster has no name
    all:topic:orders        every operation
    all                     everything that the owner may

A scope adds no right: what it allows, its owner must be allowed too. As in access control lists, an operation
brings those that cannot be done without, and a name with * does not match names that begin with `__`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.model.operation import IMPLIED_BY, RESERVED_PREFIX, Operation, Resource, ResourceKind

PERMISSIONS_MAX: Final = 100
_NAME_LENGTH_MAX: Final = 255
_ALL: Final = "all"
_OPERATIONS: Final = {each.name.lower(): each for each in Operation}
_KINDS: Final = {each.name.lower(): each for each in ResourceKind}


class Permission(NamedTuple):
    """One line of a scope. Without an operation every one is meant, without a kind every resource."""

    operation: Operation | None = None
    kind: ResourceKind | None = None
    name: str = ""
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.kind is None:
            return _ALL
        operation = _ALL if self.operation is None else self.operation.name.lower()
        if self.kind is ResourceKind.CLUSTER:
            return f"{operation}:cluster"
        return f"{operation}:{self.kind.name.lower()}:{self.name}{'*' if self.is_prefix else ''}"

    def allows(self, operation: Operation, resource: Resource) -> bool:
        if self.kind is None:
            return True
        if operation is Operation.IDEMPOTENT_WRITE and self._writes_topics:
            return True  # as in Kafka: to write to some topic is enough (KIP-679)
        return self.kind is resource.kind and self._names(resource) and self._implies(operation)

    @property
    def _writes_topics(self) -> bool:
        return self.kind is ResourceKind.TOPIC and self.operation in (None, Operation.WRITE)

    def _names(self, resource: Resource) -> bool:
        if resource.kind is ResourceKind.CLUSTER:
            return True
        if not self.is_prefix:
            return resource.name == self.name
        if resource.name.startswith(RESERVED_PREFIX) and not self.name.startswith(RESERVED_PREFIX):
            return False
        return resource.name.startswith(self.name)

    def _implies(self, operation: Operation) -> bool:
        own = self.operation
        return own is None or own is operation or own in IMPLIED_BY.get(operation, ())


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token may do, as far as its owner may."""

    permissions: tuple[Permission, ...]

    def __str__(self) -> str:
        return " ".join(self.texts())

    def texts(self) -> list[str]:
        """The permissions as they are written."""
        return [str(each) for each in self.permissions]

    def allows(self, operation: Operation, resource: Resource) -> bool:
        """Whether this may be done, if the owner may do it."""
        return any(each.allows(operation, resource) for each in self.permissions)


def read_scope(texts: list[str]) -> Scope:
    """The scope; ValueError says which permission is none, and how one is written."""
    if not texts:
        raise ValueError("a scope has one permission at least, such as read:topic:orders, or all")
    if len(texts) > PERMISSIONS_MAX:
        raise ValueError(f"a scope has {PERMISSIONS_MAX} permissions at most, and this one has {len(texts)}")
    return Scope(tuple(dict.fromkeys(map(read_permission, texts))))


def read_permission(text: str) -> Permission:
    """ValueError for anything that is not OPERATION:KIND:NAME."""
    if text == _ALL:
        return Permission()
    operation, _, rest = text.partition(":")
    kind, _, name = rest.partition(":")
    if kind not in _KINDS or (operation != _ALL and operation not in _OPERATIONS):
        raise ValueError(
            f"{text[:60]!r} is no permission: write OPERATION:KIND:NAME, such as read:topic:orders. "
            f"Operations: {_ALL}, {', '.join(_OPERATIONS)}. Kinds: {', '.join(_KINDS)}"
        )
    found = None if operation == _ALL else _OPERATIONS[operation]
    if _KINDS[kind] is ResourceKind.CLUSTER:
        if name:
            raise ValueError(f"{text[:60]!r}: the cluster has no name. Write {operation}:cluster")
        return Permission(found, ResourceKind.CLUSTER)
    bare = name.removesuffix("*")
    if not name or len(name) > _NAME_LENGTH_MAX or "*" in bare or not name.isprintable():
        raise ValueError(
            f"{text[:60]!r} needs a name of 1 to {_NAME_LENGTH_MAX} characters after {operation}:{kind}:, "
            "where * may stand at the end only"
        )
    return Permission(found, _KINDS[kind], bare, bare != name)
