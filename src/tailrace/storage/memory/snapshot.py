"""Snapshots of the rings: one file, replaced as a whole at an interval and at a clean stop.

All rings are cut in one turn of the loop, so that no cursor points at a record that is not there, and no
transaction is half in it. To cut a ring is to remember its columns: what it drops meanwhile, it drops from
copies of them. The file is packed a block at a time and written by a thread, so the loop is never held; a
snapshot takes no memory but the blocks and the batches that were dropped while it was written.

A file that is not whole is refused at the start: half a snapshot would be a log with holes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from tailrace.model import StorageError
from tailrace.runtime import Clock
from tailrace.runtime.private import open_private
from tailrace.storage.memory.snapshot_file import (
    BadSnapshot,
    RingCut,
    Snapshot,
    framed,
    read_snapshot,
    write_end,
    write_head,
    write_log,
)

logger = logging.getLogger(__name__)

SNAPSHOT: Final = "rings.snapshot"
_TEMPORARY: Final = "rings.snapshot.tmp"

Mark = tuple[object, ...]
"""Tells two states of the rings apart."""


class Snapshots:
    """The snapshot of one node's rings, in a directory of its own."""

    def __init__(self, directory: Path, *, interval_ms: int, clock: Clock) -> None:
        self.path = directory / SNAPSHOT
        self.cluster_id = ""  # told with the first log
        self.written = 0
        """Snapshots written by this process."""
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._mark: Mark | None = None  # of what the file has
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Snapshots {self.path}, {self.written} written>"

    async def load(self) -> Snapshot | None:
        """What the file holds; None without a file. StorageError if it is not whole."""
        return await asyncio.to_thread(load, self.path)

    def start(self, cut: Callable[[], Sequence[RingCut]], mark: Callable[[], Mark]) -> None:
        """Write at the interval, whenever something has changed."""
        self._task = asyncio.get_running_loop().create_task(self._repeat(cut, mark), name="ring-snapshots")

    async def stop(self) -> None:
        """Write no more by itself; one that is being written is finished."""
        task, self._task = self._task, None
        if task is not None:
            async with self._writing:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def write(self, cut: Callable[[], Sequence[RingCut]], mark: Callable[[], Mark]) -> None:
        """Replace the file, unless it has what the rings have; StorageError if it cannot be written."""
        async with self._writing:
            current = mark()
            if current == self._mark:
                return
            cuts = cut()  # in the turn of the mark
            head = write_head(self.cluster_id, self._clock.now_ms())
            try:
                await self._replace(head, cuts)
            except OSError as error:
                raise StorageError(
                    "write the snapshot", str(self.path), error.strerror or str(error)
                ) from error
            self._mark = current
            self.written += 1

    # ---- inside

    async def _repeat(self, cut: Callable[[], Sequence[RingCut]], mark: Callable[[], Mark]) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.write(cut, mark)
            except StorageError as error:
                logger.error("snapshot failed, tried again in %g s: %s", self._interval_s, error)

    async def _replace(self, head: bytes, cuts: Sequence[RingCut]) -> None:
        temporary = self.path.with_name(_TEMPORARY)
        file = await asyncio.to_thread(open, temporary, "wb", opener=open_private)
        try:
            for payload in _payloads(head, cuts):
                await asyncio.to_thread(_write_block, file, payload)
            await asyncio.to_thread(_put_in_place, file, temporary, self.path)
        except BaseException:
            file.close()
            with suppress(OSError):
                temporary.unlink()
            raise


def load(path: Path) -> Snapshot | None:
    """The snapshot in a file; None without a file. StorageError with cause and fix if it is damaged."""
    try:
        with path.open("rb") as file:
            return read_snapshot(file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError("read the snapshot", str(path), error.strerror or str(error)) from error
    except BadSnapshot as error:
        raise StorageError(
            "read the snapshot",
            str(path),
            f"it is damaged, and nothing of it was loaded: {error}",
            hint=f"Put a copy of it back. To start without its messages: mv {path} {path}.damaged",
        ) from error


def _payloads(head: bytes, cuts: Sequence[RingCut]) -> Iterator[bytes]:
    yield head
    for cut in cuts:
        yield from write_log(cut)
    yield write_end(cuts)


def _write_block(file: BinaryIO, payload: bytes) -> None:
    file.write(framed(payload))


def _put_in_place(file: BinaryIO, temporary: Path, path: Path) -> None:
    """The new file in the place of the old one, durable before and after."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    os.replace(temporary, path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
