"""Schemas of a registry that refer to others there, made one document that stands alone.

    Avro           a type of another schema is written out where it is first named
    JSON Schema    other documents are put under $defs, and each $ref leads to its place in the one document

A registry names what a schema refers to: `name` is what the text says (the full name of an Avro type, the
address in a $ref), `subject` and `version` say which schema that is. One document can be kept beside a
checkpoint and sent to workers, which then ask the registry for nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from tailrace.model import ConfigError

SCHEMAS_MAX = 256
"""How many other schemas one may need."""
DEPTH_MAX = 128
_AVRO_NAMED = ("record", "error", "enum", "fixed")
_PLACE = "_referred_{}"


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A schema as references name it."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of a schema, and by name which schemas it refers to."""

    text: str
    references: Mapping[str, Version] = field(default_factory=dict)


Fetch = Callable[[Version], Source]


def read_references(given: object, *, what: str) -> dict[str, Version]:
    """What the registry says of the references of a schema; ConfigError if it makes no sense."""
    found: dict[str, Version] = {}
    for each in given if isinstance(given, list) else [given]:
        match each:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                found[name] = Version(subject, version)
            case _:
                raise ConfigError(
                    f"the schema registry's answer for {what} has a reference without a version"
                )
    return found


def write_out(kind: str, source: Source, *, fetch: Fetch, what: str) -> str:
    """The text of a schema with everything that it refers to; ConfigError if that cannot be."""
    if kind not in ("AVRO", "JSON"):
        return source.text  # `resolve` and the readers of values refuse it by its kind
    others = _fetch_all(source, fetch, what=what)
    try:
        root = json.loads(source.text)
        documents = {version: json.loads(other.text) for version, other in others.items()}
        if kind == "AVRO":
            return json.dumps(_Avro(others, documents).write(root, source))
        return json.dumps(_bundle(root, source, others, documents))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the schema of {what}, or one that it refers to, is not JSON: {error}") from error


def _fetch_all(source: Source, fetch: Fetch, *, what: str) -> dict[Version, Source]:
    """Every schema that one needs, however far away; the nearest ones first."""
    found: dict[Version, Source] = {}
    waiting = list(source.references.values())
    for version in waiting:
        if version in found:
            continue
        if len(found) == SCHEMAS_MAX:
            raise ConfigError(f"the schema of {what} needs more than {SCHEMAS_MAX} other schemas")
        found[version] = fetch(version)
        waiting += found[version].references.values()
    return found


# ---- Avro


class _Avro:
    """Writes each referred type out at the first place where it is named: later ones find it by its name."""

    def __init__(self, sources: Mapping[Version, Source], documents: Mapping[Version, Any]) -> None:
        self._sources = sources
        self._documents = documents
        self._written: set[Version] = set()

    def write(self, document: Any, source: Source, *, space: str = "", depth: int = 0) -> Any:
        if depth > DEPTH_MAX:
            raise ConfigError(f"an Avro schema is nested more than {DEPTH_MAX} deep")

        def inside(value: Any, space: str) -> Any:
            return self.write(value, source, space=space, depth=depth + 1)

        if isinstance(document, str):
            return self._named(document, source, space=space, depth=depth)
        if isinstance(document, list):
            return [inside(each, space) for each in document]
        if not isinstance(document, dict):
            return document
        kind = document.get("type")
        if kind in _AVRO_NAMED:
            name = str(document.get("name", ""))
            space = name.rpartition(".")[0] or str(document.get("namespace", space))
            fields = document.get("fields")
            if isinstance(fields, list):
                return {**document, "fields": [_typed(each, lambda t: inside(t, space)) for each in fields]}
            return document
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            return {**document, key: inside(document.get(key), space)}
        written = inside(kind, space)
        return document if written == kind else written

    def _named(self, name: str, source: Source, *, space: str, depth: int) -> Any:
        """A type by its name: what it stands for if it is of another schema and not written out yet."""
        full = f"{space}.{name}" if space and "." not in name else name
        for each in (full, name):
            version = source.references.get(each)
            if version is None:
                continue
            if version in self._written or not isinstance(self._documents[version], dict):
                return each
            self._written.add(version)
            document = {**self._documents[version], "name": each}
            # An empty namespace stands for none; without it the type would be in that of the type around it.
            document = {**document, "namespace": each.rpartition(".")[0]}
            return self.write(document, self._sources[version], depth=depth + 1)
        return name


def _typed(field: Any, write: Callable[[Any], Any]) -> Any:
    return {**field, "type": write(field["type"])} if isinstance(field, dict) and "type" in field else field


# ---- JSON Schema


def _bundle(
    root: Any, source: Source, sources: Mapping[Version, Source], documents: Mapping[Version, Any]
) -> Any:
    if not isinstance(root, dict):
        return root
    places = {version: _PLACE.format(at) for at, version in enumerate(sources)}
    others = {
        places[version]: _rewrite(
            document, document, sources[version], places, own=f"#/$defs/{places[version]}"
        )
        for version, document in documents.items()
    }
    made = _rewrite(root, root, source, places, own="#")
    return {**made, "$defs": {**made.get("$defs", {}), **others}}


def _rewrite(value: Any, document: Any, source: Source, places: Mapping[Version, str], *, own: str) -> Any:
    """A part of a document with every $ref as the one document has it. `own` is where its document is."""
    if isinstance(value, list):
        return [_rewrite(each, document, source, places, own=own) for each in value]
    if not isinstance(value, dict):
        return value
    made = {name: _rewrite(each, document, source, places, own=own) for name, each in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str):
        made["$ref"] = _place_of(reference, document, source, places, own=own)
    return made


def _place_of(
    reference: str, document: Any, source: Source, places: Mapping[Version, str], *, own: str
) -> str:
    name, _, inner = reference.partition("#")
    if not name:
        return own + inner
    base = document.get("$id") if isinstance(document, dict) else None
    for each in _spellings(name, str(base or "")):
        if each in source.references:
            return f"#/$defs/{places[source.references[each]]}{inner}"
    return reference


def _spellings(name: str, base: str) -> Sequence[str]:
    """A reference as it is written, and as an address where the document has one."""
    return (name, urljoin(base, name)) if base else (name,)
