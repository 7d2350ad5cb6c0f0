"""Messages made from the schema: any that a version can carry, by hypothesis or by a seed, and full ones."""

from __future__ import annotations

import random
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st

from tailrace.wire.kafka import APIS, FETCH, PRODUCE, Message, request_type, response_type
from tailrace.wire.kafka.schema import Field, read_fields

M = TypeVar("M", bound=Message)

COMPILED = [api for key, api in APIS.items() if key not in (PRODUCE, FETCH)]

MESSAGE_TYPES = [kind(api.key) for api in COMPILED for kind in (request_type, response_type)]


def versions_of(message_type: type[Message]) -> range:
    name = message_type.__name__.removesuffix("Request").removesuffix("Response")
    (api,) = (api for api in COMPILED if api.name == name)
    return range(api.min_version, api.known_max + 1)


CASES = [(message_type, version) for message_type in MESSAGE_TYPES for version in versions_of(message_type)]

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def messages(message_type: type[M], version: int) -> st.SearchStrategy[M]:
    """Any message whose fields the version has; the others keep their defaults."""
    fields = [field for field in read_fields(message_type) if version in field.versions]
    return st.builds(message_type, **{field.name: _values(field, version) for field in fields})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _items(field, version)
    if field.array:
        values = st.lists(values, max_size=3)
    return st.none() | values if field.nullable(version) else values


def _items(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return messages(field.struct, version)
    if field.name.endswith("error_code"):
        return st.integers(-1, 100)  # an oracle knows these by name
    if field.name.endswith("_ms"):
        return st.integers(0, 2**31 - 1)  # and makes durations of these
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "string": st.text(max_size=5) | st.sampled_from(["events", "größe", "x" * 130]),
        "bytes": st.binary(max_size=5) | st.just(bytes(200)),
        "float64": st.floats(allow_nan=False),
        "uuid": st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)]),
    }
    if field.kind in simple:
        return simple[field.kind]
    if field.kind == "uint16":
        return st.integers(0, 2**16 - 1)
    bits = _BITS[field.kind]
    return st.sampled_from([0, 1, -1, 2**bits - 1, -(2**bits)]) | st.integers(-(2**bits), 2**bits - 1)


def full(message_type: type[M], version: int) -> M:
    """A message with something in every field and two elements in every array."""
    fields = [field for field in read_fields(message_type) if version in field.versions]
    return message_type(**{field.name: _something(field, version) for field in fields})


def _something(field: Field, version: int) -> Any:
    if field.struct is not None:
        value: Any = full(field.struct, version)
    else:
        value = {"string": "grün", "bytes": b"\0\1", "bool": True, "uuid": UUID(int=7)}.get(field.kind, 5)
    return [value, value] if field.array else value


def sample(message_type: type[M], version: int, dice: random.Random) -> M:
    """A message thrown with dice: cheaper than hypothesis where every version wants many."""
    fields = [field for field in read_fields(message_type) if version in field.versions]
    return message_type(**{field.name: _throw(field, version, dice) for field in fields})


def _throw(field: Field, version: int, dice: random.Random) -> Any:
    if field.nullable(version) and dice.random() < 0.3:
        return None
    if field.array:
        return [_throw_item(field, version, dice) for _ in range(dice.choice((0, 1, 1, 2, 3)))]
    return _throw_item(field, version, dice)


def _throw_item(field: Field, version: int, dice: random.Random) -> Any:
    if field.struct is not None:
        return sample(field.struct, version, dice)
    if field.name.endswith("error_code"):
        return dice.randint(-1, 100)
    if field.name.endswith("_ms"):
        return dice.randint(0, 2**31 - 1)
    match field.kind:
        case "bool":
            return dice.random() < 0.5
        case "string":
            return dice.choice(("", "events", "größe", "\U0001f980", "x" * 126, "x" * 127, "y" * 300))
        case "bytes":
            return dice.randbytes(dice.choice((0, 1, 126, 127, 300)))
        case "uuid":
            return UUID(int=dice.choice((0, 1, 2**128 - 1)))
        case "float64":
            return dice.choice((0.0, -1.5, 1e300, 2.0**-40))
        case "uint16":
            return dice.choice((0, 1, 2**16 - 1))
    bits = _BITS[field.kind]
    return dice.choice((0, 1, -1, 2**bits - 1, -(2**bits), dice.randrange(2**bits)))
