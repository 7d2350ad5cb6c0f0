"""The simulated disk: the ports of runtime/disk.py over inodes that know what a power cut would leave.

One `random.Random` drives all of it, so a seed is a history. What can go wrong:

    crash_at             the process ends in the N-th call; a write may be done in part, up to a sector's end
    power_cut(), kill()  what follows: the machine loses what was not synced, or only the process is gone
    sync_error_chance    a sync fails once, and later ones succeed without having written the pages (inode.py)
    write_error_chance   a write fails; part of it may be done, up to a sector's end
    capacity_bytes       there is no space beyond it
    slow_chance          a call takes up to a quarter of a second instead of a millisecond
    cold_chance          `read_nowait` would have to wait
    read_flip_chance     a read shows one bit wrong, and another read of the same place does not
    flip_bit()           the medium is damaged, for good

Names and files are apart, as POSIX has it: an open file that was removed or renamed stays usable, syncing it
does not make its name durable, and syncing its directory does not make its bytes durable. A rename from one
directory to another is two changes, of which a power cut may leave either.

A call in flight happens whether or not somebody waits for it. So a file must not be closed, nor a buffer be
used again, before it has; the former is asserted, the latter shows as wrong bytes.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.testing.simulation.calls import SimulatedCalls
from tailrace.testing.simulation.directory import Directory
from tailrace.testing.simulation.file import SimulatedFile
from tailrace.testing.simulation.inode import Inode
from tailrace.testing.simulation.tree import Tree

_FREE_BYTES = 1 << 40  # where no capacity is set
_EVICTION_CHANCE = 0.3
_SURVIVAL_CHANCES = (0.0, 1.0, 0.5, 0.5, 0.15, 0.85)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What a file's syncs came to: the bytes that certainly survive a power cut, and counts of this life."""

    content: bytes
    syncs: int
    failures: int
    syncs_after_failure: int


class SimulatedDisk(SimulatedCalls):
    """A data directory that loses what a real one may lose."""

    def __init__(
        self,
        rng: random.Random,
        *,
        capacity_bytes: int | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(rng, capacity_bytes=capacity_bytes, log=log)
        self._tree = Tree()

    def __repr__(self) -> str:
        return f"<SimulatedDisk life {self.life}, {self.calls} calls, {self.faults} faults>"

    # ---- the port

    async def open(self, path: str, *, fresh: bool = False) -> SimulatedFile:
        return await self.call(self._open, path, fresh)

    async def create(self, path: str) -> SimulatedFile:
        return await self.call(self._create, path)

    async def list(self, path: str) -> builtins.list[str]:
        return await self.call(self._list, path)

    async def make_directory(self, path: str) -> None:
        await self.call(self._make_directory, path)

    async def rename(self, source: str, target: str) -> None:
        await self.call(self._rename, source, target)

    async def remove(self, path: str) -> None:
        await self.call(self._remove, path)

    async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        return [source for source, target in names if not await self.call(self._link, source, target)]

    async def sync_directory(self, path: str) -> None:
        self.check_alive(self.life)
        self.begin_sync()
        directory = self._tree.directory(path)
        await self.call(self._sync_directory, path, directory, directory.begin_sync())

    def free_bytes(self) -> int:
        self.check_alive(self.life)
        if self.capacity_bytes is None:
            return _FREE_BYTES
        return max(0, self.capacity_bytes - self._tree.taken_bytes())

    # ---- the effects

    def _open(self, path: str, fresh: bool) -> SimulatedFile:
        self.enter("open fresh" if fresh else "open", path)
        inode = self._tree.inode(path)
        if fresh:
            inode.drop_cache()
        return SimulatedFile(self, self._tree, path, inode)

    def _create(self, path: str) -> SimulatedFile:
        self.enter("create", path)
        return SimulatedFile(self, self._tree, path, self._tree.create(path))

    def _list(self, path: str) -> builtins.list[str]:
        self.enter("list", path or "/")
        names = self._tree.directory(path).names
        return sorted(name + "/" if isinstance(node, Directory) else name for name, node in names.items())

    def _make_directory(self, path: str) -> None:
        self.enter("make directory", path)
        self._tree.make_directory(path)

    def _rename(self, source: str, target: str) -> None:
        self.enter("rename", source, "to", target)
        self._tree.rename(source=source, target=target)

    def _link(self, source: str, target: str) -> bool:
        self.enter("link", source, target)
        return self._tree.link(source=source, target=target)

    def _remove(self, path: str) -> None:
        self.enter("remove", path)
        self._tree.remove(path)

    def _sync_directory(self, path: str, directory: Directory, mark: int) -> None:
        self.enter("sync directory", path or "/")
        if self.fails(self.sync_error_chance):
            raise self.fail_sync(path)
        directory.end_sync(mark)

    # ---- what a test does to the machine

    def power_cut(self, *, survival_chance: float | None = None) -> None:
        """Cut the power: of what was not synced any part may be there, and another process starts.

        The chance of every sector and name is the same for all files, or drawn for each: a journal that is
        there whole beside a segment that is gone whole is rare otherwise.
        """
        self.say("power cut")
        one_for_all = self.rng.random() < 0.5
        chance = self.rng.choice(_SURVIVAL_CHANCES)
        for node in self._tree.everything():
            if not one_for_all:
                chance = self.rng.choice(_SURVIVAL_CHANCES)
            node.power_cut(self.rng, chance if survival_chance is None else survival_chance)
        self._start_again()

    def kill(self) -> None:
        """End the process alone: the system keeps what was written, though it may forget clean pages."""
        self.say("kill")
        if self.rng.random() < _EVICTION_CHANCE:
            self.drop_caches()
        self._start_again()

    def _start_again(self) -> None:
        self._tree.start_life()
        self.start_life()

    def drop_caches(self) -> None:
        """Let the system forget every clean page, as it may at any time."""
        for node in self._tree.everything():
            if isinstance(node, Inode):
                node.drop_cache()

    def flip_bit(self, path: str, *, position: int, bit: int) -> None:
        """Damage the medium."""
        inode = self._tree.inode(path)
        assert 0 <= position < len(inode.cache), f"{path} has no byte {position}"
        self.say(f"flip bit {bit} of {path} at {position}")
        self.faults += 1
        inode.flip_bit(position=position, bit=bit)

    # ---- what a test sees of it

    def paths(self) -> builtins.list[str]:
        """Every path, sorted; directories end with a slash."""
        return [path for path, _ in self._tree.root.walk()]

    def content(self, path: str) -> bytes:
        """What a process reads in a file."""
        return bytes(self._tree.inode(path).cache)

    def synced(self, path: str) -> Synced:
        """What a file's syncs came to."""
        inode = self._tree.inode(path)
        return Synced(
            content=bytes(inode.platter),
            syncs=inode.syncs,
            failures=inode.sync_failures,
            syncs_after_failure=inode.syncs_after_failure,
        )
