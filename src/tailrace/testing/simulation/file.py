"""An open file of the simulated disk: the port's calls, and what each does when it takes effect.

The part of a failing or ending write that is done ends with a sector. A sync is counted, and its reach fixed,
when it begins; whether it fails is drawn when it ends.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple, Unpack

from tailrace.runtime.disk import Buffer
from tailrace.testing.simulation.calls import SimulatedCalls
from tailrace.testing.simulation.inode import Inode
from tailrace.testing.simulation.tree import Tree, os_error

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class SimulatedFile:
    """An open file of one life. Using it once it is closed is a bug of the caller."""

    __slots__ = ("_calls", "_closed", "_in_flight", "_inode", "_life", "_tree", "path")

    def __init__(self, calls: SimulatedCalls, tree: Tree, path: str, inode: Inode) -> None:
        self.path = path
        self._calls = calls
        self._tree = tree
        self._inode = inode
        self._life = calls.life
        self._in_flight = 0
        self._closed = False
        inode.handles += 1

    def __repr__(self) -> str:
        return f"<SimulatedFile {self.path} of {len(self._inode.cache)} bytes>"

    def __del__(self) -> None:
        if not self._in_flight:  # else the loop was dropped with the call in it, and so is this
            self.close()

    def size(self) -> int:
        self._check()
        return len(self._inode.cache)

    def read_nowait(self, position: int, buffer: memoryview) -> int | None:
        self._check()
        if self._calls.rng.random() < self._calls.cold_chance:
            return None
        if 0 < len(self._inode.cache) - position < len(buffer):
            return None  # the real disk cannot tell the end of the file from a cold page
        return self._fill(position, buffer)

    async def read(self, position: int, buffer: memoryview) -> int:
        return await self._call(self._read, position, buffer)

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        await self._call(self._write, position, buffers)
        if sync:
            await self.sync()

    async def sync(self, *, bulk: bool = False) -> None:
        self._check()
        self._calls.begin_sync()
        self._inode.syncs_after_failure += self._inode.sync_failures > 0
        await self._call(self._sync, self._inode.begin_sync(), bulk)

    async def truncate(self, size: int) -> None:
        await self._call(self._truncate, size)

    async def reserve(self, end: int) -> None:
        await self._call(self._reserve, end)

    def close(self) -> None:
        """Not while a call is in flight: by the time it happens the descriptor may belong to another file."""
        if self._closed or self._life != self._calls.life or self._calls.crashed:
            return
        assert not self._in_flight, f"{self.path} is closed while a call is in flight"
        self._closed = True
        self._tree.close(self._inode)

    def _check(self) -> None:
        self._calls.check_alive(self._life)
        assert not self._closed, f"{self.path} is used after it was closed"

    async def _call(self, effect: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> _T:
        self._check()
        self._in_flight += 1
        return await self._calls.call(self._land, effect, *args)

    def _land(self, effect: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> _T:
        self._in_flight -= 1
        return effect(*args)

    # ---- the effects

    def _read(self, position: int, buffer: memoryview) -> int:
        self._calls.enter("read", self.path, len(buffer), "at", position)
        return self._fill(position, buffer)

    def _fill(self, position: int, buffer: memoryview) -> int:
        assert position >= 0
        data = self._inode.cache[position : position + len(buffer)]
        if data and self._calls.fails(self._calls.read_flip_chance):
            data[self._calls.rng.randrange(len(data))] ^= 1 << self._calls.rng.randrange(8)
        buffer[: len(data)] = data
        return len(data)

    def _write(self, position: int, buffers: Sequence[Buffer]) -> None:
        assert position >= 0
        calls = self._calls
        data = b"".join(buffers)
        end = position + len(data)
        if calls.ends_here("write", self.path, len(data), "at", position):
            self._write_part(position, data)
            raise calls.end()
        if calls.fails(calls.write_error_chance):
            self._write_part(position, data)
            raise os_error(calls.write_errno, self.path)
        room_end = self._room_end(end)
        if room_end < end:
            self._write_part(position, data[: max(0, room_end - position)])
            raise os_error(errno.ENOSPC, self.path)
        self._inode.write(position, data)

    def _write_part(self, position: int, data: bytes) -> None:
        stop = self._calls.part(start=position, end=position + len(data))
        self._inode.write(position, data[: stop - position])

    def _room_end(self, end: int) -> int:
        """How far up to `end` the file may reach; what lies below is taken even where it is a hole."""
        capacity_bytes = self._calls.capacity_bytes
        taken_end = self._inode.reserved_end
        if capacity_bytes is None or end <= taken_end:
            return end
        return min(end, taken_end + max(0, capacity_bytes - self._tree.taken_bytes()))

    def _sync(self, mark: int, bulk: bool) -> None:
        self._calls.enter("sync in bulk" if bulk else "sync", self.path)
        if self._calls.fails(self._calls.sync_error_chance):
            self._inode.fail_sync(mark)
            self._inode.sync_failures += 1
            raise self._calls.fail_sync(self.path)
        self._inode.end_sync(mark)
        self._inode.syncs += 1

    def _truncate(self, size: int) -> None:
        assert size >= 0
        self._calls.enter("truncate", self.path, "to", size)
        self._inode.truncate(size)

    def _reserve(self, end: int) -> None:
        self._calls.enter("reserve", self.path, "to", end)
        if self._room_end(end) < end:
            raise os_error(errno.ENOSPC, self.path)
        self._inode.reserved_end = max(self._inode.reserved_end, end)
