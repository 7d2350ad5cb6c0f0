"""A request for a tail: what it shows, and where it begins, as offsets by partition."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.partition import Partition
from tailrace.broker.publishing import topic_mark
from tailrace.broker.topic import Topic, unknown_partition, unknown_topic
from tailrace.http.error import invalid
from tailrace.http.live.entry import Filter, Resumption, read_event_id
from tailrace.http.live.tail import Tail
from tailrace.http.rest.reading import encode_text, offset_at, plan_last, read_moment
from tailrace.http.rest.topic import topic_of
from tailrace.http.service import HttpService, Stream
from tailrace.model import Offset, OffsetOutOfRange
from tailrace.model.operation import Operation as AclOperation

LATEST: Final = "latest"
_EARLIEST = "earliest"
_NUMBER = re.compile(r"-?\d{1,19}")


class TailQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which records are shown, and from where on."""

    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None  # all of them
    offset: str | None = None  # latest, earliest, -10: the last ten of all, or with a partition its offset
    ts: str | None = None  # ms since 1970, 10m ago, or 2026-11-16T09:00
    contains: str | None = None  # text in key or value
    key: str | None = None  # exactly this one

    def filter(self) -> Filter:
        return Filter(
            partition=self.partition,
            key=encode_text("key", self.key),
            text=encode_text("contains", self.contains),
        )


async def open_tail(
    service: HttpService, access: Access, name: str, query: TailQuery, *, last_event_id: str | None
) -> tuple[Stream, Tail]:
    """A place among the streams, and the tail that a request asks for; both must be closed afterwards."""
    topic = topic_of(access, name, AclOperation.READ)
    now_ms = service.clock.now_ms()
    filter = query.filter()
    positions = await service.in_time(
        plan_start(
            topic,
            query,
            last_event_id=last_event_id,
            now_ms=now_ms,
            records_max=service.config.records_max,
        )
    )
    if not access.still_exists(topic):  # it was deleted meanwhile
        raise unknown_topic(name)
    stream = service.open_stream()
    try:
        return stream, service.tails.open(access, topic, filter=filter, positions=positions)
    except BaseException:
        stream.__exit__()
        raise


async def plan_start(
    topic: Topic, query: TailQuery, *, last_event_id: str | None, now_ms: int, records_max: int
) -> dict[int, int] | None:
    """The offset of each wanted partition to begin with; None: the newest that come from now on."""
    wanted = [_partition(topic, query.partition)] if query.partition is not None else list(topic.partitions)
    if query.offset is not None and query.ts is not None:
        raise invalid("offset and ts both say where to begin. Leave one out")
    if last_event_id:
        return _resumed(wanted, read_event_id(last_event_id), mark=topic_mark(topic.id))
    if query.ts is not None:
        return {each.index: await offset_at(each, read_moment(query.ts, now_ms=now_ms)) for each in wanted}
    if query.offset in (None, LATEST):
        return None
    offset = query.offset or ""
    if offset.startswith("-") and _NUMBER.fullmatch(offset):
        return await plan_last(wanted, -int(offset), records_max=records_max)
    return _offsets(wanted, offset, names_one=query.partition is not None)


def _partition(topic: Topic, index: int) -> Partition:
    if index >= len(topic.partitions):
        raise unknown_partition(topic, index)
    return topic.partitions[index]


def _offsets(wanted: list[Partition], offset: str, *, names_one: bool) -> dict[int, int]:
    if offset == _EARLIEST:
        return {each.index: each.start_offset for each in wanted}
    if not _NUMBER.fullmatch(offset):
        raise invalid(
            "offset: Expected an offset, earliest, latest, or -10 for the last 10 records, "
            f"not {offset[:60]!r}"
        )
    number = int(offset)
    if not names_one:
        raise invalid(f"offset {number} is one of a partition. Say which: &partition=0")
    (partition,) = wanted
    start, end = partition.start_offset, partition.high_watermark
    if not start <= number <= end:
        raise OffsetOutOfRange(Offset(number), start=start, end=end)
    return {partition.index: number}


def _resumed(wanted: list[Partition], resumption: Resumption, *, mark: str) -> dict[int, int]:
    """Behind what was shown; a partition that is not named is newer than the id, and so is another topic."""
    shown = resumption.shown if resumption.mark == mark else {}
    return {
        each.index: min(shown[each.index] + 1, each.high_watermark)
        if each.index in shown
        else each.start_offset
        for each in wanted
    }
