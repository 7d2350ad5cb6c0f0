"""Python source in the making: lines, their depth, and the names that the lines refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.wire.kafka.schema import FIXED, Field, Message, fields_of


class Source:
    """Collects the lines of one function and the objects it needs by name."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._serial = 0

    def add(self, *lines: str) -> None:
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def serial(self) -> int:
        """A number that makes a name unique in this function."""
        self._serial += 1
        return self._serial

    def name(self, stem: str, value: Any) -> str:
        """A name for an object; the same object keeps its name."""
        for known, other in self.names.items():
            if other is value:
                return known
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def function(self, name: str) -> Callable[..., Any]:
        """Runs the lines, and gives the function that they define."""
        scope = dict(self.names)
        exec(compile(self.text(), f"<{self.title}>", "exec"), scope)
        function: Callable[..., Any] = scope[name]
        return function


def size_min(message_type: type[Message], version: int, *, flexible: bool) -> int:
    """The fewest bytes that a struct can take on the wire."""
    plain, _ = fields_of(message_type, version)
    return sum(field_size_min(field, version, flexible=flexible) for field in plain) + flexible


def field_size_min(field: Field, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a field can take on the wire."""
    if field.array:
        return 1 if flexible else 4
    if field.struct is not None and field.nullable(version):
        return 1
    return item_size_min(field, version, flexible=flexible)


def item_size_min(field: Field, version: int, *, flexible: bool) -> int:
    """The fewest bytes of one element of an array field, or of the value of another."""
    if field.struct is not None:
        return size_min(field.struct, version, flexible=flexible)
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "uuid":
        return 16
    return 1 if flexible else (2 if field.kind == "string" else 4)
