"""One read of records: where it begins, what it takes, and how it waits for the first record.

    partition   one, or by default all of them, merged by time
    offset      earliest (the default), latest, a number in one partition, or -10: the last ten of all
    offsets     0:17,1:8: these partitions from these offsets on, as `next_offsets` of a read says
    ts          the first records at or after a time

Reading is stateless: an answer says where to go on. A read that finds nothing may wait; it is woken by the
partitions, nobody polls, and it ends early when its client is gone or the node stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Annotated, Any

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.newest import plan_newest
from tailrace.broker.partition import Partition
from tailrace.broker.reading import Cursor, Page, PageLimits, read_page
from tailrace.broker.topic import Topic, unknown_topic
from tailrace.http.body import hold
from tailrace.http.config import HttpConfig
from tailrace.http.disconnect import wait_over
from tailrace.http.error import invalid
from tailrace.http.operation import TEXT_END, Call
from tailrace.http.search import Search
from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.moment import parse_moment

LIMIT = 100
_SCANNED_PAGES = 10  # as many full pages are looked through for what a filter wants
_HELD_PAGES = 1  # and as many bytes are held at most while partitions are merged
_ANSWER_FACTOR = 2  # what a page takes with the JSON that is made of it

_Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^(earliest|latest|-?[0-9]{{1,19}}){TEXT_END}",
        description="an offset, earliest, latest, or -10 for the last 10 records",
    ),
]
_Offsets = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^[0-9]{{1,10}}:[0-9]{{1,19}}(,[0-9]{{1,10}}:[0-9]{{1,19}})*{TEXT_END}",
        description="an offset for each partition, as in 0:120,1:98",
    ),
]
_Moment = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class ReadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a read begins, how much it gives, and what is looked for."""

    partition: _Partition | None = None
    offset: _Offset | None = None
    offsets: _Offsets | None = None
    ts: _Moment | None = None  # ms since 1970, 10m (ago), or 2026-11-16T09:00
    limit: Annotated[int, msgspec.Meta(ge=1)] = LIMIT
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None  # of keys, values and headers
    timeout: Annotated[int, msgspec.Meta(ge=0)] = 0  # ms to wait for the first record
    key: str | None = None  # exactly this one
    contains: str | None = None  # text in key or value


class Reading:
    """What one read found, and where the next one goes on."""

    def __init__(self, cursors: Sequence[Cursor]) -> None:
        self._cursors = cursors
        self.page = Page()

    @property
    def next_offsets(self) -> dict[int, int]:
        return {each.partition.index: each.position for each in self._cursors}

    @property
    def high_watermarks(self) -> dict[int, int]:
        return {each.partition.index: each.partition.high_watermark for each in self._cursors}

    @property
    def last_stable_offsets(self) -> dict[int, int]:
        """Where reading of committed records ends: below the high watermark while a transaction is open."""
        return {each.partition.index: each.partition.last_stable_offset for each in self._cursors}


async def read_records(call: Call[ReadQuery, Any], topic: Topic) -> Reading:
    """Read once, or until there is something to show or the time is up."""
    try:
        return await _read(call, topic)
    except TailraceError as error:
        if call.access.still_exists(topic):
            raise
        raise unknown_topic(topic.name) from error  # which is why its logs could not be read


async def _read(call: Call[ReadQuery, Any], topic: Topic) -> Reading:
    query, service = call.query, call.service
    limits = plan_limits(query, service.config)
    search = Search(key=encode_text("key", query.key), text=encode_text("contains", query.contains))
    accept = None if search.is_open else search.admits
    starts = await service.in_time(
        plan_starts(
            call.access,
            topic,
            query,
            now_ms=service.clock.now_ms(),
            records_max=service.config.records_max,
        )
    )
    _check_same(call.access, topic)
    cursors = [Cursor(_readable(call.access, topic, index), at) for index, at in starts.items()]
    reading = Reading(cursors)
    permit = partial(hold, call.answering, _ANSWER_FACTOR * limits.bytes_max, service.config)
    deadline = asyncio.get_running_loop().time() + query.timeout / 1000
    with _Watch(call, [each.partition for each in cursors]) as watch:
        while True:
            page = await service.in_time(read_page(cursors, limits, accept=accept, permit=permit))
            page.scanned += reading.page.scanned
            page.scanned_bytes += reading.page.scanned_bytes
            reading.page = page
            if page.records or limits.are_reached_by(page) or not await watch.wait_moved(deadline):
                return reading
            _check_same(call.access, topic)


def _check_same(access: Access, topic: Topic) -> None:
    """Raise if the topic is gone: its offsets mean nothing in a later topic of the same name.

    Raise too if the session may not read it any more.
    """
    if not access.still_exists(topic):
        raise unknown_topic(topic.name)
    access.topic_by_id(topic.id, AclOperation.READ)


def _readable(access: Access, topic: Topic, index: int) -> Partition:
    return access.readable(TopicPartition(topic.name, index))


def plan_limits(query: ReadQuery, config: HttpConfig) -> PageLimits:
    """How much a read takes; INVALID_REQUEST if that is over what the node allows."""
    bytes_max = config.read_bytes_max if query.max_bytes is None else query.max_bytes
    for name, wanted, most in (
        ("limit", query.limit, config.records_max),
        ("max_bytes", bytes_max, config.read_bytes_max),
        ("timeout", query.timeout, config.wait_ms_max),
    ):
        if wanted > most:
            raise invalid(f"{name} may be {most} at most, and not {wanted}", max=most)
    return PageLimits(
        records_max=query.limit,
        bytes_max=bytes_max,
        scanned_max=_SCANNED_PAGES * config.records_max,
        scanned_bytes_max=_SCANNED_PAGES * config.read_bytes_max,
        held_bytes_max=_HELD_PAGES * config.read_bytes_max,
    )


# ---- where it begins


async def plan_starts(
    access: Access, topic: Topic, query: ReadQuery, *, now_ms: int, records_max: int
) -> dict[int, int]:
    """The offset to begin with, by partition."""
    given = [name for name in ("offset", "offsets", "ts") if getattr(query, name) is not None]
    if len(given) > 1:
        raise invalid(f"{' and '.join(given)} both say where to begin. Leave one out")
    if query.offsets is not None:
        return _named_starts(query)
    wanted = range(len(topic.partitions)) if query.partition is None else [query.partition]
    partitions = [_readable(access, topic, index) for index in wanted]
    if query.ts is not None:
        at_ms = read_moment(query.ts, now_ms=now_ms)
        return {each.index: await offset_at(each, at_ms) for each in partitions}
    return await _starts_at(partitions, query, records_max=records_max)


async def _starts_at(
    partitions: Sequence[Partition], query: ReadQuery, *, records_max: int
) -> dict[int, int]:
    if query.offset in (None, "earliest"):
        return {each.index: each.start_offset for each in partitions}
    if query.offset == "latest":
        return {each.index: each.last_stable_offset for each in partitions}
    number = int(query.offset or "")
    if query.offset is not None and query.offset.startswith("-"):
        return await plan_last(partitions, -number, records_max=records_max)
    if query.partition is None:
        raise invalid(
            f"offset {number} is one of a partition. Say which: &partition=0, or &offsets=0:{number}"
        )
    return {query.partition: number}


async def plan_last(partitions: Sequence[Partition], count: int, *, records_max: int) -> dict[int, int]:
    """Where the last so many records of all these partitions together begin, in each of them."""
    if count > records_max:
        raise invalid(f"offset may go {records_max} records back, and not {count}", max=records_max)
    return await plan_newest(partitions, count)


def _named_starts(query: ReadQuery) -> dict[int, int]:
    if query.partition is not None:
        raise invalid("offsets name their partitions. Leave partition out")
    pairs = [pair.split(":") for pair in (query.offsets or "").split(",")]
    starts = {int(index): int(offset) for index, offset in pairs}
    if len(starts) < len(pairs):
        raise invalid("offsets name a partition twice")
    return starts


async def offset_at(partition: Partition, timestamp_ms: int) -> int:
    """The first record at or after a time; the end if there is none."""
    end = partition.last_stable_offset
    found = await partition.find_timestamp(timestamp_ms, up_to=end)
    return end if found is None else found.offset


def read_moment(text: str, *, now_ms: int) -> int:
    """A time as people write it; a short number is milliseconds as a long one is."""
    if text.isdecimal() and text.isascii() and len(text) < 10:
        return int(text)
    try:
        return max(parse_moment(text, now_ms=now_ms), 0)
    except ConfigError as error:
        raise invalid(f"ts: {error}") from error


def encode_text(name: str, text: str | None) -> bytes | None:
    """The bytes of a parameter's text; INVALID_REQUEST if it has none."""
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{name} is not text") from error


# ---- waiting


class _Watch:
    """Somebody who wants to be told when one of some partitions moves, or when there is no use in waiting."""

    def __init__(self, call: Call[Any, Any], partitions: Iterable[Partition]) -> None:
        self._call = call
        self._partitions = partitions
        self._moved = asyncio.Event()
        self._over: asyncio.Future[Any] | None = None  # the client is gone, or the node stops

    def __enter__(self) -> _Watch:
        for each in self._partitions:
            each.waiters.add(self._moved.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._partitions:
            each.waiters.discard(self._moved.set)
        if self._over is not None:
            self._over.cancel()

    async def wait_moved(self, deadline: float) -> bool:
        """True when one has moved since the last time; False when waiting is over."""
        rest_s = deadline - asyncio.get_running_loop().time()
        if rest_s <= 0:
            return False
        if self._over is None:
            self._over = asyncio.ensure_future(wait_over(self._call.service, self._call.request.receive))
        moved = asyncio.ensure_future(self._moved.wait())
        try:
            await asyncio.wait({moved, self._over}, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            if self._over.done() or not moved.done():
                return False
        finally:
            moved.cancel()
        self._moved.clear()
        return True
