"""Access control entries as the Kafka protocol numbers them, and back."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol, TypeVar

from tailrace.kafka.resources import invalid_request
from tailrace.model.operation import Operation, ResourceKind
from tailrace.security.acl import AclBinding, AclFilter, Pattern, PatternFilter, Permission

_ANY: Final = 1
ALL: Final = 2
"""The operation of entries about every operation."""

E = TypeVar("E", bound=IntEnum)


class FilterFields(Protocol):
    """The filter of a DescribeAcls request, or one of a DeleteAcls request."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def read_filter(given: FilterFields) -> AclFilter:
    """The filter; INVALID_REQUEST for numbers that mean nothing here."""
    operation = None if given.operation in (_ANY, ALL) else known(Operation, given.operation, "operation")
    return AclFilter(
        kind=_or_any(ResourceKind, given.resource_type_filter, "resource type"),
        name=given.resource_name_filter,
        pattern=known(PatternFilter, given.pattern_type_filter, "pattern type"),
        principal=given.principal_filter,
        host=given.host_filter,
        operation=operation,
        is_about_all=given.operation == ALL,
        permission=_or_any(Permission, given.permission_type, "permission type"),
    )


def operation_number(binding: AclBinding) -> int:
    """The number of the operation that an entry is about."""
    return ALL if binding.operation is None else int(binding.operation)


def read_operation(number: int) -> Operation | None:
    """The operation of a new entry; None for all of them. INVALID_REQUEST."""
    return None if number == ALL else known(Operation, number, "operation")


def read_pattern(number: int) -> Pattern:
    return known(Pattern, number, "pattern type")


def known(kind: type[E], number: int, what: str) -> E:
    """The member with this number; INVALID_REQUEST."""
    try:
        return kind(number)
    except ValueError:
        numbers = ", ".join(f"{each.value} ({each.name})" for each in kind)
        raise invalid_request(f"{what} {number} is not one of {numbers}") from None


def _or_any(kind: type[E], number: int, what: str) -> E | None:
    return None if number == _ANY else known(kind, number, what)
