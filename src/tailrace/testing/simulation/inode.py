"""A simulated file without its name: what a running process reads, and what a power cut leaves.

    cache     what reads see
    platter   what certainly survives a power cut
    epochs    between the two, oldest first: what was written between one sync and the next

    write, truncate          sync begins              sync ends                 sync fails
    -> cache                 the epoch is closed,     closed epochs             closed epochs -> lost:
    -> the open epoch        another one opens        -> platter                readable, clean, never written

An epoch keeps every version that a sector of 512 bytes had, and every size. A power cut leaves any subset of
the sectors, each in any version, and any of the sizes. A sync promises only what was written before it began,
therefore the epochs: a write that overtakes a sync in flight is not covered by it.

Lost sectors are clean for the system, so the next sync succeeds without them: it lies. Only dropping the
cache shows that they never reached the platter. A size is metadata, which a failed sync leaves pending.
"""

from __future__ import annotations

import random

SECTOR_BYTES = 512


class _Epoch:
    """What changed between two syncs."""

    __slots__ = ("number", "sectors", "sizes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sectors: dict[int, list[bytes]] = {}  # sector -> its versions, oldest first
        self.sizes: list[int] = []


class Inode:
    """The contents of one file."""

    __slots__ = (
        "_epochs",
        "_lost",
        "_open",
        "cache",
        "handles",
        "platter",
        "reserved_end",
        "sync_failures",
        "syncs",
        "syncs_after_failure",
    )

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.reserved_end = 0  # space below it is taken, whatever the size is
        self._open = _Epoch(0)
        self._epochs = [self._open]
        self._lost: dict[int, list[bytes]] = {}
        self.start_life()

    def start_life(self) -> None:
        """A new process: nobody has the file open, and no sync has failed that it knows of."""
        self.handles = 0
        self.syncs = 0
        self.sync_failures = 0
        self.syncs_after_failure = 0

    def write(self, position: int, data: bytes) -> None:
        if not data:
            return
        end = position + len(data)
        if end > len(self.cache):
            _resize(self.cache, end)
            self._open.sizes.append(end)
        self.cache[position:end] = data
        self.reserved_end = max(self.reserved_end, end)
        self._touch(position, end)

    def truncate(self, size: int) -> None:
        """What is cut counts as zeroed: a power cut that undoes the cut may leave zeros, or the old bytes."""
        if size == len(self.cache):
            self.reserved_end = min(self.reserved_end, size)
            return
        old_size = len(self.cache)
        _resize(self.cache, size)
        self.reserved_end = min(self.reserved_end, size)
        self._open.sizes.append(size)
        self._touch(size, old_size)

    def _touch(self, position: int, end: int) -> None:
        sectors = self._open.sectors
        for index in range(position // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            version = _sector(self.cache, index)
            versions = sectors.get(index)
            if versions is None:
                sectors[index] = [version]
            else:
                versions.append(version)

    # ---- sync

    def begin_sync(self) -> int:
        """Close the open epoch; the result tells `end_sync` or `fail_sync` how far this sync goes."""
        mark = self._open.number
        if self._open.sectors or self._open.sizes:
            self._open = _Epoch(mark + 1)
            self._epochs.append(self._open)
            return mark
        return mark - 1

    def end_sync(self, mark: int) -> None:
        """What was written before the sync began survives from now on, but for what an earlier one lost."""
        for epoch in self._take(mark):
            if epoch.sizes:
                _resize(self.platter, epoch.sizes[-1])
            for index, versions in epoch.sectors.items():
                self._put(index, versions[-1])
                self._lost.pop(index, None)

    def fail_sync(self, mark: int) -> None:
        """The pages count as clean although they are not on the platter."""
        sizes: list[int] = []
        for epoch in self._take(mark):
            sizes += epoch.sizes
            for index, versions in epoch.sectors.items():
                self._lost.setdefault(index, []).extend(versions)
        first = self._epochs[0]
        first.sizes = sizes + first.sizes

    def _take(self, mark: int) -> list[_Epoch]:
        taken = [epoch for epoch in self._epochs if epoch.number <= mark]
        del self._epochs[: len(taken)]
        return taken

    def _put(self, index: int, version: bytes) -> None:
        start = index * SECTOR_BYTES
        room = min(SECTOR_BYTES, len(self.platter) - start)
        if room > 0:
            self.platter[start : start + room] = version[:room]

    # ---- faults

    def drop_cache(self) -> None:
        """Clean pages are read again from the platter: those that never got there are seen to be missing."""
        for index in self._lost:
            if not any(index in epoch.sectors for epoch in self._epochs):
                start = index * SECTOR_BYTES
                room = min(SECTOR_BYTES, len(self.cache) - start)
                if room > 0:
                    self.cache[start : start + room] = _sector(self.platter, index)[:room]
        self._lost = {}

    def power_cut(self, rng: random.Random, survival_chance: float) -> None:
        """Leave what a power cut leaves."""
        pending = self._pending()
        sizes = [size for epoch in self._epochs for size in epoch.sizes]
        if sizes and rng.random() < max(survival_chance, 0.3):
            _resize(self.platter, sizes[-1] if rng.random() < 0.7 else rng.choice(sizes))
        for index in sorted(pending.keys() | self._lost.keys()):
            chance = survival_chance if index in pending else survival_chance / 2
            if rng.random() < chance:
                versions = self._lost.get(index, []) + pending.get(index, [])
                self._put(index, versions[-1] if rng.random() < 0.75 else rng.choice(versions))
        if pending or sizes or self._lost:
            self.cache = bytearray(self.platter)
        self.reserved_end = len(self.cache)
        self._open = _Epoch(self._open.number + 1)
        self._epochs = [self._open]
        self._lost = {}

    def _pending(self) -> dict[int, list[bytes]]:
        pending: dict[int, list[bytes]] = {}
        for epoch in self._epochs:
            for index, versions in epoch.sectors.items():
                pending.setdefault(index, []).extend(versions)
        return pending

    def flip_bit(self, *, position: int, bit: int) -> None:
        """Damage one bit wherever it is kept, so that neither a sync nor a power cut repairs it."""
        for image in (self.cache, self.platter):
            if position < len(image):
                image[position] ^= 1 << bit
        index, within = divmod(position, SECTOR_BYTES)
        for kept in (self._lost, *(epoch.sectors for epoch in self._epochs)):
            for number, version in enumerate(kept.get(index, ())):
                flipped = bytearray(version)
                flipped[within] ^= 1 << bit
                kept[index][number] = bytes(flipped)


def _sector(image: bytearray, index: int) -> bytes:
    part = bytes(image[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES])
    return part if len(part) == SECTOR_BYTES else part.ljust(SECTOR_BYTES, b"\0")


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))
