"""Entries by kind and name: a decision looks up the literal name, `*`, and the prefixes of the name.

Prefixes lie by their length, and there are as many look-ups as prefixes have different lengths. Below a name
entries lie by principal, so that a topic with ten thousand readers costs no more than one with two.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tailrace.model.operation import RESERVED_PREFIX, ResourceKind
from tailrace.security.acl.binding import ANY_NAME, EVERYBODY, AclBinding, Pattern, binding_id

Entries = dict[str, dict[str, AclBinding]]
"""The entries of one name, by principal and id."""


class _Place(NamedTuple):
    """Where the entries of one kind of resource lie."""

    literal: dict[str, Entries]
    prefixed: dict[str, Entries]
    lengths: list[int]  # of the prefixes, each once, ascending

    def names(self, pattern: Pattern) -> dict[str, Entries]:
        return self.literal if pattern is Pattern.LITERAL else self.prefixed


class AclIndex(Mapping[str, AclBinding]):
    """Entries by their ids, and the ways to those that match."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._bindings: dict[str, AclBinding] = {}
        self._places = {kind: _Place({}, {}, []) for kind in ResourceKind}
        for each in bindings:
            self.add(binding_id(each), each)

    def __repr__(self) -> str:
        return f"<AclIndex of {len(self)}>"

    def __getitem__(self, key: str) -> AclBinding:
        return self._bindings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bindings)

    def __len__(self) -> int:
        return len(self._bindings)

    def add(self, key: str, binding: AclBinding) -> None:
        """Take in an entry; one that is there already is harmless."""
        if key in self._bindings:
            return
        self._bindings[key] = binding
        place = self._places[binding.kind]
        names = place.names(binding.pattern)
        if binding.pattern is Pattern.PREFIXED and binding.name not in names:
            length = len(binding.name)
            if length not in place.lengths:
                insort(place.lengths, length)
        names.setdefault(binding.name, {}).setdefault(binding.principal, {})[key] = binding

    def remove(self, key: str) -> None:
        """Take out an entry; one that is not there is harmless."""
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        place = self._places[binding.kind]
        names = place.names(binding.pattern)
        entries = names[binding.name]
        del entries[binding.principal][key]
        if not entries[binding.principal]:
            del entries[binding.principal]
        if not entries:
            del names[binding.name]
            length = len(binding.name)
            if binding.pattern is Pattern.PREFIXED and all(len(each) != length for each in names):
                place.lengths.remove(length)

    def matching(self, kind: ResourceKind, name: str, principal: str) -> Iterator[AclBinding]:
        """The entries that are about this resource and this principal."""
        place = self._places[kind]
        yield from _of(place.literal.get(name), principal)
        if name.startswith(RESERVED_PREFIX):
            return
        if name != ANY_NAME:
            yield from _of(place.literal.get(ANY_NAME), principal)
        for length in place.lengths:
            if length > len(name):
                return
            yield from _of(place.prefixed.get(name[:length]), principal)

    def about(self, kind: ResourceKind, principal: str) -> Iterator[AclBinding]:
        """The entries about any resource of a kind and this principal."""
        place = self._places[kind]
        for names in (place.literal, place.prefixed):
            for entries in names.values():
                yield from _of(entries, principal)


def _of(entries: Entries | None, principal: str) -> Iterator[AclBinding]:
    if entries is not None:
        yield from entries.get(principal, {}).values()
        yield from entries.get(EVERYBODY, {}).values()
