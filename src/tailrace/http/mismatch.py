"""What is wrong with a value from outside, in words: a person does not read regular expressions.

msgspec names the place (`$.records[0].offset`). The type at that place knows the rest: the fields that there
are, and the description that stands beside a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")
_UNKNOWN_FIELD = "Object contains unknown field"
_PATTERN = "matching regex"


def explain(error: msgspec.ValidationError, kind: Any, *, what: str) -> str:
    """Where a value does not fit its type, and what would; `what` is the name of the whole."""
    text, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`")
    found = list(_types_at(inspect.type_info(kind), place))
    text = text.replace("`", "")
    if text.startswith(_UNKNOWN_FIELD):
        text = f"{text}. There are: {', '.join(_fields(found))}"
    elif _PATTERN in text and (words := _description(found)):
        text = f"Expected {words}"
    return f"{place.lstrip('.') or what}: {text}"


def _types_at(kind: inspect.Type, place: str) -> Iterator[inspect.Type]:
    """The types that a value at a place may have, with what is said of them still around them."""
    found = [kind]
    for step in _STEP.finditer(place):
        found = [inner for each in found for inner in _inside(each, step[1])]
    for each in found:
        yield from each.types if isinstance(each, inspect.UnionType) else (each,)


def _inside(kind: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    match kind:
        case inspect.Metadata():
            yield from _inside(kind.type, field)
        case inspect.UnionType():
            for each in kind.types:
                yield from _inside(each, field)
        case inspect.StructType():
            yield from (each.type for each in kind.fields if each.encode_name == field)
        case inspect.ListType():
            yield kind.item_type
        case inspect.DictType():
            yield kind.value_type


def _fields(kinds: list[inspect.Type]) -> list[str]:
    bare = [each.type if isinstance(each, inspect.Metadata) else each for each in kinds]
    return [
        field.encode_name for each in bare if isinstance(each, inspect.StructType) for field in each.fields
    ]


def _description(kinds: list[inspect.Type]) -> str | None:
    for each in kinds:
        if isinstance(each, inspect.Metadata) and each.extra_json_schema:
            words: str | None = each.extra_json_schema.get("description")
            return words
    return None
