"""A simulated directory: names that point to inodes, and what a power cut leaves of them.

    names     what a running process sees
    platter   what certainly survives a power cut
    changes   made since the last sync, oldest first; after a power cut any subset of them was made

A sync promises the changes made before it began. One that fails leaves them pending: unlike a file's pages
they are made durable by the next one that succeeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tailrace.testing.simulation.inode import Inode


class _Change:
    """One change of a directory, made whole or not at all: `node` loses one name, gains another, or both."""

    __slots__ = ("gained", "lost", "node")

    def __init__(self, node: Node, *, lost: str | None = None, gained: str | None = None) -> None:
        self.node = node
        self.lost = lost
        self.gained = gained

    def apply(self, names: dict[str, Node]) -> None:
        if self.lost is not None and names.get(self.lost) is self.node:
            del names[self.lost]
        if self.gained is not None:
            names[self.gained] = self.node


class Directory:
    """The names in one directory."""

    __slots__ = ("_changes", "_platter", "_settled", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._platter: dict[str, Node] = {}
        self._changes: list[_Change] = []
        self._settled = 0  # changes that are no longer in the list

    def add(self, name: str, node: Node) -> None:
        self._change(_Change(node, gained=name))

    def remove(self, name: str) -> None:
        self._change(_Change(self.names[name], lost=name))

    def rename(self, *, source: str, target: str) -> None:
        self._change(_Change(self.names[source], lost=source, gained=target))

    def _change(self, change: _Change) -> None:
        change.apply(self.names)
        self._changes.append(change)

    def begin_sync(self) -> int:
        """How far a sync that begins now goes; for `end_sync`."""
        return self._settled + len(self._changes)

    def end_sync(self, mark: int) -> None:
        count = max(0, mark - self._settled)
        for change in self._changes[:count]:
            change.apply(self._platter)
        del self._changes[:count]
        self._settled += count

    def power_cut(self, rng: random.Random, survival_chance: float) -> None:
        """Leave what a power cut leaves of the names; what they point to is the caller's business."""
        for change in self._changes:
            if rng.random() < survival_chance:
                change.apply(self._platter)
        self.names = dict(self._platter)
        self._settled += len(self._changes)
        self._changes = []

    def known(self) -> list[Node]:
        """Everything that has a name here, or may have one after a power cut; each once."""
        nodes = [*self.names.values(), *self._platter.values(), *(change.node for change in self._changes)]
        return list(dict.fromkeys(nodes))

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """Paths and nodes below, sorted; a directory's path ends with a slash and precedes its contents."""
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, Directory):
                yield f"{prefix}{name}/", node
                yield from node.walk(f"{prefix}{name}/")
            else:
                yield prefix + name, node


Node = Inode | Directory
