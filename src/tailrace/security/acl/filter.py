"""Which entries a listing or a removal means.

What is left out means every value, as in Kafka's AclBindingFilter.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tailrace.model.operation import Operation, ResourceKind
from tailrace.security.acl.binding import AclBinding, Pattern, Permission, matches_name


class PatternFilter(enum.IntEnum):
    """Which patterns are meant (KIP-290)."""

    ANY = 1
    """Both, with this very name."""
    MATCH = 2
    """Those that match a resource of this name: literal, `*` and prefixes."""
    LITERAL = 3
    PREFIXED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """What entries must have; None is anything."""

    kind: ResourceKind | None = None
    name: str | None = None
    pattern: PatternFilter = PatternFilter.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    is_about_all: bool = False  # entries about every operation are meant; `operation` is None then
    permission: Permission | None = None

    def admits(self, binding: AclBinding) -> bool:
        """Whether an entry is meant."""
        return (
            self.kind in (None, binding.kind)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.permission in (None, binding.permission)
            and self._admits_operation(binding)
            and self._admits_pattern(binding)
        )

    def _admits_operation(self, binding: AclBinding) -> bool:
        if self.is_about_all:
            return binding.operation is None
        return self.operation in (None, binding.operation)

    def _admits_pattern(self, binding: AclBinding) -> bool:
        if self.pattern is PatternFilter.LITERAL and binding.pattern is not Pattern.LITERAL:
            return False
        if self.pattern is PatternFilter.PREFIXED and binding.pattern is not Pattern.PREFIXED:
            return False
        if self.name is None:
            return True
        if self.pattern is PatternFilter.MATCH:
            return matches_name(binding.pattern, binding.name, self.name)
        return binding.name == self.name


EVERY_ACL: Final = AclFilter()
