"""Records out of partitions, for those who want records and not batches: one page at a time.

A `Cursor` goes through one partition. `read_page` merges several by time: it takes the record whose time is
the oldest among those that stand at the front, so every partition keeps its order. Where the cursors stand in
the end one goes on, has nothing twice and misses nothing.

- What is visible is shown (`visible_records`): nothing at or above the last stable offset.
- Only what is looked at is decoded. What the cursors hold, decompressed, is bounded: over `held_bytes_max` a
  cursor forgets its bytes and keeps the time of its next record alone.
- What cannot be read is told with its place (`Unreadable`), after everything before it: a page ends there,
  and the error comes when nothing else is left to show. A page also ends where its next records were deleted
  while it was read.
- A page over FREE_BYTES needs a permit, if its reader asks for one: many large pages at once would take more
  memory than a node has. While it waits for the permit it holds no bytes of partitions.
- The loop is given to others every thousand records. A large batch is opened beside everything else
  (`storage.opening`), and two pages at a time hold such batches open: a page that waits for its turn holds no
  bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from tailrace.broker.partition import Partition
from tailrace.broker.unreadable import Unreadable
from tailrace.broker.visible_records import read
from tailrace.model import LogDamaged, OffsetOutOfRange
from tailrace.records import Batch, BatchError, Record, Visible
from tailrace.storage.opening import Opened, open_nowait, open_records

FREE_BYTES = 64 * 1024
_LARGE_PAGES_MAX = 2
_BREATH_RECORDS = 1000
_PIECE_BYTES_MAX = 256 * 1024
_PIECE_BYTES_MIN = 4 * 1024


class Found(NamedTuple):
    """A record and where it was."""

    partition: int
    record: Record
    append_time: bool  # its time is the broker's


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """When a page is full; the first record always has room."""

    records_max: int
    bytes_max: int  # of keys, values and headers
    scanned_max: int  # records that are looked at, whether they are wanted or not
    scanned_bytes_max: int
    held_bytes_max: int

    def are_reached_by(self, page: Page) -> bool:
        """Whether nothing more is looked at, although there may be more."""
        return (
            len(page.records) >= self.records_max
            or page.scanned >= self.scanned_max
            or page.scanned_bytes >= self.scanned_bytes_max
        )


@dataclass(slots=True)
class Page:
    """What one read found."""

    records: list[Found] = field(default_factory=list)
    bytes: int = 0
    scanned: int = 0
    scanned_bytes: int = 0


Accept = Callable[[Record], bool]
Permit = Callable[[], Awaitable[None]]

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Cursor:
    """Where one partition is being read."""

    __slots__ = (
        "_batch",
        "_batches",
        "_large",
        "_piece_bytes",
        "_piece_end",
        "_records",
        "failure",
        "head",
        "head_ms",
        "held_bytes",
        "partition",
        "position",
    )

    def __init__(self, partition: Partition, position: int) -> None:
        self.partition = partition
        self.position = position  # of the next record to be taken
        self.failure: Unreadable | None = None
        self.head: Record | None = None  # the record at the front, once `look` found one
        self.head_ms = 0  # its time, which is known on when the bytes are forgotten
        self.held_bytes = 0  # the piece that was read, and the batch that is decompressed
        self._piece_bytes = 0
        self._piece_end = position
        self._batches: Iterator[Visible] = iter(())
        self._batch: Batch | None = None  # the one that is open
        self._records: Iterator[Record] = iter(())
        self._large: Visible | None = None  # comes next, and takes longer to open than a turn

    def __repr__(self) -> str:
        return f"<Cursor {self.partition.name} at {self.position}>"

    @property
    def needs_place(self) -> bool:
        """Whether a large batch comes next."""
        return self._large is not None

    async def look(self, *, piece_bytes: int, may_open_large: bool) -> bool:
        """Whether there is a record at the front; False at the end, and where nothing can be read.

        False too before a large batch that it may not open: then `needs_place`.
        """
        while not self.look_nowait():
            if self.failure is not None:
                return False
            if self._large is not None:
                if not may_open_large:
                    return False
                await self._open_large(self._large)
                continue
            self.position = max(self.position, self._piece_end)
            if not await self._load(piece_bytes):
                return False
        return True

    def look_nowait(self) -> bool:
        """The same among the bytes that are here."""
        if self.head is not None:
            return True
        if self.failure is not None or self._large is not None:
            return False
        try:
            while True:
                for record in self._records:
                    self.head, self.head_ms = record, record.timestamp
                    return True
                if not self._open_next():
                    return False
        except BatchError as error:
            self._fail(error)
            return False

    def take(self) -> Found:
        """The record at the front; the cursor stands behind it then."""
        head, batch = self.head, self._batch
        assert head is not None, "nobody looked"
        assert batch is not None
        self.head = None
        self.position = head.offset + 1
        return Found(self.partition.index, head, batch.is_log_append_time)

    def skip(self) -> None:
        """Stand behind the record at the front, which nobody wants."""
        head = self.head
        assert head is not None, "nobody looked"
        self.head = None
        self.position = head.offset + 1

    def take_failure(self) -> Unreadable:
        """What cannot be read, to be raised: its traceback knows the cursor, which must not know it."""
        failure, self.failure = self.failure, None
        assert failure is not None
        return failure

    def drop(self) -> None:
        """Forget the bytes; the next `look` reads them again."""
        self.head = self._batch = self._large = None
        self._records, self._batches = iter(()), iter(())
        self._piece_end = self.position
        self._piece_bytes = self.held_bytes = 0

    # ---- inside

    async def _load(self, piece_bytes: int) -> bool:
        """Get the bytes at the position; False if there are none."""
        self.drop()
        try:
            portion = await read(self.partition, self.position, bytes_max=piece_bytes)
        except LogDamaged as error:
            self._fail(error)
            return False
        self._piece_end = portion.next_offset
        if not portion.data or portion.next_offset <= self.position:
            self.position = max(self.position, self._piece_end)
            return False
        self._batches = portion.batches()
        self._piece_bytes = self.held_bytes = len(portion.data)
        return True

    def _open_next(self) -> bool:
        """Go on to the next batch that has something to show."""
        self._batch = None
        for visible in self._batches:
            self._batch = visible.batch
            opened = open_nowait(visible)
            if opened is None:
                self._large = visible
                return False
            self._hold(opened)
            return True
        return False

    async def _open_large(self, visible: Visible) -> None:
        self._records = iter(())  # of the batch before, which may be as large
        try:
            self._hold(await open_records(visible))
        except BatchError as error:
            self._fail(error)
        self._large = None

    def _hold(self, opened: Opened) -> None:
        self.held_bytes = self._piece_bytes + opened.size
        self._records = opened.records

    def _fail(self, cause: Exception) -> None:
        batch = self._batch
        next_offset = None if batch is None else batch.next_offset
        self.failure = Unreadable(
            self.partition.name, offset=self.position, next_offset=next_offset, cause=cause
        )


async def read_page(
    cursors: Sequence[Cursor],
    limits: PageLimits,
    *,
    accept: Accept | None = None,
    permit: Permit | None = None,
) -> Page:
    """The next records of all cursors by time, as far as a page goes.

    `permit` is awaited once, before the page takes more than FREE_BYTES; what it raises is raised here.
    Unreadable if nothing else is left to show; OffsetOutOfRange if a cursor stands outside its log.
    """
    merge = _Merge(cursors, limits)
    page = Page()
    try:
        await merge.start()
        await _fill(page, merge, limits, accept, permit)
    except OffsetOutOfRange:  # deleted meanwhile, which is told to whoever goes on from there
        if not page.scanned:
            raise
    finally:
        merge.close()
    if merge.is_empty and not page.records:
        _check_readable(cursors)
    return page


async def _fill(
    page: Page, merge: _Merge, limits: PageLimits, accept: Accept | None, permit: Permit | None
) -> None:
    while (cursor := merge.front_nowait() or await merge.front()) is not None:
        record = cursor.head
        assert record is not None
        size = record_bytes(record)
        if accept is None or accept(record):
            if page.records and page.bytes + size > limits.bytes_max:
                break
            if permit is not None and page.bytes + size > FREE_BYTES:
                merge.let_go()
                await permit()
                permit = None
                continue
            page.bytes += size
            page.records.append(cursor.take())
        else:
            cursor.skip()
        page.scanned += 1
        page.scanned_bytes += size
        if limits.are_reached_by(page):
            break


def _check_readable(cursors: Sequence[Cursor]) -> None:
    """Raise what keeps a cursor from its end, if there is something."""
    for each in cursors:
        if each.failure is not None:
            raise each.take_failure()


class _Merge:
    """Cursors by the time of the record at their front, and what they hold together."""

    __slots__ = ("_cursors", "_heap", "_held_bytes", "_limits", "_piece_bytes", "_place", "_steps", "_taken")

    def __init__(self, cursors: Sequence[Cursor], limits: PageLimits) -> None:
        self._cursors = cursors
        self._limits = limits
        share = limits.bytes_max // max(len(cursors), 1)
        self._piece_bytes = min(max(share, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)
        self._heap: list[tuple[int, int, Cursor]] = []  # time, partition, cursor
        self._held_bytes = 0
        self._steps = 0  # since others had the loop
        self._place: asyncio.Semaphore | None = None  # where it has one of the places for large batches
        self._taken: Cursor | None = None  # whose front was given out, and may be gone by now

    @property
    def is_empty(self) -> bool:
        """Whether no cursor has anything left that can be read."""
        return not self._heap

    async def start(self) -> None:
        for cursor in self._cursors:
            if await self._look(cursor):
                self._heap.append((cursor.head_ms, cursor.partition.index, cursor))
            self._bound(cursor)
        heapify(self._heap)

    def front_nowait(self) -> Cursor | None:
        """The cursor with the oldest front; None if `front` must be asked, which may have to wait."""
        heap, taken = self._heap, self._taken
        self._steps += 1
        if taken is None or self._steps >= _BREATH_RECORDS:
            return None
        before = taken.held_bytes
        is_there = taken.look_nowait()
        self._held_bytes += taken.held_bytes - before
        if not is_there:
            return None
        if len(heap) == 1:
            return taken
        heapreplace(heap, (taken.head_ms, taken.partition.index, taken))
        cursor = heap[0][2]
        if cursor is not taken:
            self._bound(taken)
        self._taken = None if cursor.head is None else cursor  # one that forgot its bytes reads them again
        return self._taken

    async def front(self) -> Cursor | None:
        """The cursor with the oldest front, which is there to be taken; None at the end of all."""
        heap, taken = self._heap, self._taken
        if taken is not None:  # it is still the first of the heap
            if await self._look(taken):
                heapreplace(heap, (taken.head_ms, taken.partition.index, taken))
            else:
                heappop(heap)
            if heap and heap[0][2] is not taken:
                self._bound(taken)
        while heap:
            cursor = heap[0][2]
            if await self._look(cursor):  # it may have forgotten its bytes
                self._taken = cursor
                return cursor
            heappop(heap)
        self._taken = None
        return None

    def let_go(self) -> None:
        """Hold no bytes: what is wanted next is read again."""
        for cursor in self._cursors:
            cursor.drop()
        self._held_bytes = 0
        self._taken = None
        self._leave_place()

    def close(self) -> None:
        """The page is done: its cursors keep no large batch open."""
        if self._place is not None:
            self.let_go()

    async def _look(self, cursor: Cursor) -> bool:
        self._steps += 1
        if self._steps >= _BREATH_RECORDS:
            self._steps = 0
            await asyncio.sleep(0)
        if cursor.head is not None:
            return True
        before = cursor.held_bytes
        found = cursor.look_nowait() or await self._read(cursor)
        self._held_bytes += cursor.held_bytes - before
        if not found and cursor.needs_place:
            await self._take_place()
            found = await self._read(cursor)
            self._held_bytes += cursor.held_bytes
        return found

    async def _read(self, cursor: Cursor) -> bool:
        return await cursor.look(piece_bytes=self._piece_bytes, may_open_large=self._place is not None)

    async def _take_place(self) -> None:
        """Wait until the page may hold large batches open; meanwhile it holds no bytes."""
        self.let_go()
        loop = asyncio.get_running_loop()
        places = _places.get(loop)
        if places is None:
            places = _places[loop] = asyncio.Semaphore(_LARGE_PAGES_MAX)
        await places.acquire()
        self._place = places

    def _leave_place(self) -> None:
        if self._place is not None:
            self._place.release()
            self._place = None

    def _bound(self, cursor: Cursor) -> None:
        """Let go of what a cursor holds if all of them hold too much."""
        if self._held_bytes > self._limits.held_bytes_max:
            self._held_bytes -= cursor.held_bytes
            cursor.drop()


def record_bytes(record: Record) -> int:
    """What a record's key, value and headers take."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size
